package org.apache.iceberg.rest; // the server's classes are visible in their own package only

import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's REST catalog on the loopback interface; the stock main class binds all of them. */
public class IcebergRest {
  /** Arguments: the port, then the backing catalog's properties as key=value. */
  public static void main(String[] arguments) throws Exception {
    Map<String, String> properties = new HashMap<>();
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    var catalog = CatalogUtil.buildIcebergCatalog("backing", properties, new Configuration());
    var context = new RESTCatalogServer.CatalogContext(catalog, properties);
    var handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    var servlet = new RESTCatalogServlet(new RESTServerCatalogAdapter(context));
    handler.addServlet(new ServletHolder(servlet), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
    server.setHandler(handler);
    server.start();
    server.join();
  }
}
