package neve.tests;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.embedded.EmbeddedEngineChangeEvent;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;

/** Prints every change event of a database as a line of JSON, until SIGTERM. */
public class Changes {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

  /** Arguments: the engine's and the connector's properties as key=value. */
  public static void main(String[] arguments) {
    var properties = new Properties();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      properties.setProperty(pair[0], pair[1]);
    }
    var engine =
        DebeziumEngine.create(Json.class)
            .using(properties)
            .using(Changes::end)
            .notifying(Changes::print)
            .build();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(engine)));
    engine.run();
  }

  private static void print(ChangeEvent<String, String> event) {
    var record = ((EmbeddedEngineChangeEvent<?, ?, ?>) event).sourceRecord();
    try {
      // Key and value are JSON already, or null.
      var topic = MAPPER.writeValueAsString(record.topic());
      var offset = MAPPER.writeValueAsString(record.sourceOffset());
      var line = "{\"topic\":%s,\"key\":%s,\"value\":%s,\"offset\":%s}";
      OUT.println(line.formatted(topic, event.key(), event.value(), offset));
    } catch (IOException unwritable) {
      throw new IllegalStateException(unwritable);
    }
  }

  private static void end(boolean success, String message, Throwable error) {
    if (!success) {
      System.err.println(message);
      Runtime.getRuntime().halt(1);
    }
  }

  private static void close(DebeziumEngine<?> engine) {
    try {
      engine.close();
    } catch (IOException | IllegalStateException late) {
      System.err.println(late);
    }
  }
}
