"""Configuration: file, environment, expansion, and errors that say which key and where."""

import json
from pathlib import Path

import pydantic
import pytest

from neve.config import Settings, load
from neve.config.reference import HIDDEN, secrets, shown_values
from neve.errors import Code, ConfigError


def write(text: str, name: str = "neve.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problem(text: str) -> str:
    write(text)
    with pytest.raises(ConfigError) as caught:
        load()
    assert caught.value.code is Code.CONFIG
    assert caught.value.exit_status == 2
    assert caught.value.hint
    return caught.value.message


def test_defaults_are_embedded_under_the_working_directory(tmp_path):
    settings = load().settings
    assert settings.catalog.type == "sqlite"
    assert settings.catalog.uri == f"sqlite:///{tmp_path}/.neve/catalog.db"
    assert settings.catalog.warehouse == f"{tmp_path}/.neve/warehouse"
    assert settings.spark.master == "local[*]"


def test_file_is_found_in_order_of_option_variable_and_directory(monkeypatch):
    write("project: here")
    assert load().settings.project == "here"
    monkeypatch.setenv("NEVE_CONFIG", str(write("project: variable", "v.yaml")))
    assert load().settings.project == "variable"
    assert load(write("project: option", "o.yaml")).settings.project == "option"


def test_relative_paths_start_where_the_file_lies(tmp_path):
    loaded = load(write("catalog:\n  uri: sqlite:///db/c.db\n  warehouse: wh\n", "sub/neve.yaml"))
    assert loaded.settings.catalog.uri == f"sqlite:///{tmp_path}/sub/db/c.db"
    assert loaded.settings.catalog.warehouse == f"{tmp_path}/sub/wh"


def test_environment_wins_and_both_are_named_as_sources(monkeypatch):
    write("project: file\ncatalog:\n  properties: {a: 1, b: true}\n")
    monkeypatch.setenv("NEVE_PROJECT", "environment")
    monkeypatch.setenv("NEVE_CATALOGS__PROD__TYPE", "rest")
    monkeypatch.setenv("NEVE_CATALOGS__PROD__URI", "http://127.0.0.1:1")
    monkeypatch.setenv("NEVE_SPARK__CONF", '{"spark.executor.memory": "1g"}')
    loaded = load()
    assert loaded.settings.project == "environment"
    assert loaded.settings.catalogs["prod"].uri == "http://127.0.0.1:1"
    assert loaded.settings.spark.conf == {"spark.executor.memory": "1g"}
    assert loaded.settings.catalog.properties == {"a": "1", "b": "true"}
    assert loaded.source(("project",)) == "NEVE_PROJECT"
    assert loaded.source(("catalog", "properties", "a")) == "neve.yaml:3"
    assert loaded.source(("storage", "region")) == "default"
    assert loaded.source(("catalog", "uri")) == "default", "its section is in the file, it is not"


def test_what_an_empty_section_or_a_variable_leaves_out_is_a_default(monkeypatch):
    write("catalog:\nobserve:\n  sentry: {}\nstorage: {path_style: false}\nspark:\n  conf: {}\n")
    monkeypatch.setenv("NEVE_RECEIVE", '{"http": "127.0.0.1:1"}')
    monkeypatch.setenv("NEVE_BUFFER", "{}")
    loaded = load()
    sources = {key: source for key, _, source in shown_values(loaded) if source != "default"}
    assert sources == {
        "receive.http": "NEVE_RECEIVE",
        # As the default is, and from the file all the same.
        "storage.path_style": "neve.yaml:4",
        "spark.conf": "neve.yaml:6",
    }


def test_variables_expand_with_defaults_and_escapes(monkeypatch):
    monkeypatch.setenv("NAME", "abc")
    write('project: "${NAME}-${OTHER:-def}-${EMPTY:-}-$${NAME}"')
    loaded = load()
    assert loaded.settings.project == "abc-def--${NAME}"
    assert "${" in loaded.source(("project",))


def test_settings_are_frozen():
    settings = load().settings
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        settings.project = "other"
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        settings.catalog.uri = "other"


def test_malformed_yaml_gives_line_and_column():
    message = problem("project: a\nstorage:\n  region: x: y\n")
    assert "neve.yaml: malformed YAML at line 3, column 12" in message


def test_unknown_key_gives_place_and_nearest_name():
    assert problem("catalog:\n  typ: sqlite") == (
        "neve.yaml:2: unknown key catalog.typ; did you mean type?"
    )
    assert "did you mean catalog?" in problem("catalogg: {}")
    assert "did you mean region?" in problem(
        "catalogs:\n  a:\n    type: rest\n    uri: http://a\n    storage:\n      regio: x"
    )


def test_unset_variable_names_key_and_variable():
    assert "storage.region needs the environment variable REGION_X, which is not set" in problem(
        'storage:\n  region: "${REGION_X}"'
    )
    assert "names no variable" in problem('project: "${}"')


def test_wrong_type_names_key_and_place():
    message = problem("project: x\nstorage:\n  path_style: maybe")
    assert message.startswith("neve.yaml:3: storage.path_style: ")
    assert "neve.yaml:1: catalog: " in problem("catalog: 7")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("catalog: {type: oracle}", "'sqlite', 'postgres', 'rest', 's3tables' or 'none'"),
        ("catalog: {type: postgres}", "uri is required"),
        ("catalog: {type: postgres, uri: 'postgresql://h/d'}", "warehouse is required"),
        ("catalog: {type: rest, uri: 'ftp://x'}", "must begin with http://"),
        ("catalog: {type: rest, uri: 'http://x', token: a, credential: b}", "not both"),
        ("catalog: {type: sqlite, token: a}", "belong to type rest"),
        ("catalog: {type: s3tables, warehouse: 's3://x'}", "ARN"),
        ("catalog: {uri: 'mysql://x'}", "must begin with sqlite:///"),
        ("storage: {access_key_id: a}", "set both or neither"),
        ("catalogs: {lake: {}}", "cannot name a catalog"),
        ("catalogs: {a-b: {}}", "cannot name a catalog"),
        ("project: a\nproject: b", "set twice"),
        ("[1, 2]", "must be a mapping"),
        ("a: &x {b: *x}", "contains itself"),
        ("project: 2026-13-45", "project"),
        ("receive: {max_request_bytes: 300000000}", "less than or equal to 268435456"),
        (
            "buffer: {max_bytes: 9, seal_bytes: 9}",
            "neve.yaml: buffer.max_bytes (9) is less than receive.max_request_bytes (67108864)",
        ),
        ("buffer: {max_bytes: 100000000, seal_bytes: 100000001}", "buffer: seal_bytes (100000001)"),
        (
            "receive: {http: ':4318'}",
            "write 127.0.0.1:4318 for this machine only, 0.0.0.0:4318 for all networks",
        ),
        ("observe: {http: 99999}", "observe.http: '127.0.0.1:99999' is not an address"),
        ("receive: {grpc: localhost}", "write host:port, such as 127.0.0.1:4318"),
        ("buffer: {seal_bytes: 64 Mb}", "neve.yaml:1: buffer.seal_bytes: write bytes, or a number"),
        ("buffer: {seal_bytes: 1.5B}", "buffer.seal_bytes: it is not a whole number of bytes"),
        (
            "upkeep: {retain: 10m}",
            "upkeep: retain (600 s) is shorter than reader_grace (3600 s): a query that began",
        ),
        (
            "upkeep: {tables: {a.b: {retain: 1m}}}",
            "tables.a.b.retain (60 s) is shorter than reader",
        ),
        (
            "consolidate: {retain_snapshots_seconds: 60}",
            "consolidate.retain_snapshots_seconds (60 s) is shorter than reader_grace",
        ),
        (
            (
                "upkeep: {reader_grace: 0, retain: 5s}\n"
                "merge: {interval: 1m, tables: [{namespace: a, changelog_table: b, "
                "mirror_table: c, primary_keys: [d], sequence_column: [e]}]}"
            ),
            "upkeep.retain (5 s) is shorter than merge.interval (60 s)",
        ),
        (
            (
                "upkeep: {reader_grace: 0, tables: {a.*: {retain: 5s}}}\n"
                "merge: {interval: 1m, tables: [{namespace: a, changelog_table: b, "
                "mirror_table: c, primary_keys: [d], sequence_column: [e]}]}"
            ),
            "upkeep.tables.a.*.retain (5 s) is shorter than merge.interval (60 s)",
        ),
        ("upkeep: {orphan_age: 1h}", "upkeep.orphan_age"),
        ("receive: {xyz: 1}", "unknown key receive.xyz; there are http, grpc, workers"),
    ],
)
def test_what_does_not_fit_is_said(text, said):
    assert said in problem(text)


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("64MB", 64_000_000, "64MB"),
        ("64 MiB", 67_108_864, "64MiB"),
        ("67108864", 67_108_864, "64MiB"),
        ("0.1GB", 100_000_000, "100MB"),
        ("8KiB", 8192, "8KiB"),
        ("9KB", 9000, "9kB"),
        ("1025", 1025, "1025B"),
    ],
)
def test_sizes_take_units_and_are_shown_with_them(text, expected, shown):
    write(f"buffer: {{seal_bytes: {text}}}")
    loaded = load()
    assert loaded.settings.buffer.seal_bytes == expected
    value = {key: value for key, value, _ in shown_values(loaded)}["buffer.seal_bytes"]
    assert (str(value), json.dumps(value)) == (shown, str(expected))


def test_durations_take_units_and_a_port_alone_is_one_of_this_machine(monkeypatch):
    write("receive: {http: 4318, dedup_seconds: 5m}\nbuffer: {seal_seconds: 500ms}")
    monkeypatch.setenv("NEVE_OBSERVE__HTTP", "9464")
    settings = load().settings
    assert (settings.receive.http, settings.observe.http) == ("127.0.0.1:4318", "127.0.0.1:9464")
    assert (settings.receive.dedup_seconds, settings.buffer.seal_seconds) == (300, 0.5)


def test_rows_ages_may_be_written_alone_and_policies_are_by_table():
    write("upkeep: {tables: {otel.*: {delete_rows_after: 30d, keep_daily: 0}}}")
    settings = load().settings
    policy = settings.upkeep.tables["otel.*"]
    assert policy.delete_rows_after is not None
    assert (policy.delete_rows_after.after, policy.delete_rows_after.column) == (30 * 86_400, None)
    assert (policy.retain, policy.keep_daily) == (None, 0)


def test_the_hint_names_no_command_that_would_fail_as_well(monkeypatch):
    monkeypatch.setenv("NEVE_RECIEVE__TOKENS", "[]")
    for _ in range(2):
        with pytest.raises(ConfigError) as caught:
            load()
        assert "neve config" not in str(caught.value.hint)
        monkeypatch.delenv("NEVE_RECIEVE__TOKENS", raising=False)
        write("receive: {htpt: 1}")


def test_binary_and_missing_files_are_refused(tmp_path):
    Path("neve.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not a YAML text file"):
        load()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load("missing.yaml")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NEVE_CATALOG__TYP", "x", "NEVE_CATALOG__TYP: unknown key catalog.typ"),
        ("NEVE_CATALGO__URI", "x", "did you mean NEVE_CATALOG__URI?"),
        ("NEVE_RECIEVE__TOKENS", "[]", "did you mean NEVE_RECEIVE__TOKENS?"),
        ("NEVE_PROJECT__NAME", "x", "did you mean NEVE_PROJECT?"),
        ("NEVE_RECEIVE__TOKEN", "x", "unknown key receive.token; did you mean tokens?"),
        ("NEVE_RECEIVE", "x", "environment"),
        ("NEVE_STORAGE__PATH_STYLE", "maybe", "NEVE_STORAGE__PATH_STYLE: storage.path_style"),
        ("NEVE_SPARK__CONF", "{oops", "environment"),
    ],
)
def test_environment_is_held_to_the_same_rules(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        load()
    assert said in caught.value.message


# As the kubelet makes them from the names of Services and of their ports.
def service_variables(service, port="4318", port_name="OTLP_HTTP"):
    return {
        f"{service}_SERVICE_HOST": "10.96.12.7",
        f"{service}_SERVICE_PORT": port,
        f"{service}_SERVICE_PORT_{port_name}": port,
        f"{service}_PORT": f"tcp://10.96.12.7:{port}",
        f"{service}_PORT_{port}_TCP": f"tcp://10.96.12.7:{port}",
        f"{service}_PORT_{port}_TCP_PROTO": "tcp",
        f"{service}_PORT_{port}_TCP_PORT": port,
        f"{service}_PORT_{port}_TCP_ADDR": "10.96.12.7",
    }


@pytest.mark.parametrize(
    "service",
    [
        "NEVE",
        *(f"NEVE_{name.upper()}" for name in Settings.model_fields),
        "NEVE_CONFIG",
        "NEVE_RECEIVER",
        "NEVE_RECEIVE_HTTP",
        "NEVE_CATALOGS_PROD",
        # From neve--x.
        "NEVE___X",
    ],
)
def test_variables_that_kubernetes_sets_for_a_service_are_no_settings(monkeypatch, service):
    expected = load()
    for name, value in service_variables(service).items():
        monkeypatch.setenv(name, value)
    assert load() == expected


def test_other_variables_are_no_settings_and_a_section_may_be_set_whole(monkeypatch):
    for name in ("NEVE_HOME", "NEVE_CATALGO", "NEVE_OPERATOR__VERSION", "NEVE_", "NEVE__"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("NEVE_RECEIVE", '{"http": "127.0.0.1:1"}')
    monkeypatch.setenv("NEVE_ENVIRONMENT", "production")
    loaded = load()
    assert loaded.settings.receive.http == "127.0.0.1:1"
    assert loaded.settings.environment == "production"
    assert loaded.source(("receive", "http")) == "NEVE_RECEIVE"


def test_no_secret_reaches_an_error_message():
    message = problem(
        "catalog: {type: sqlite, token: hunter2hunter2}\nstorage: {secret_access_key: s3cr3ts3cr3t}"
    )
    assert "hunter2" not in message
    assert "s3cr3t" not in message


def test_promotions_are_named_after_their_attribute_or_as_they_say(monkeypatch):
    promote = '[{"attribute": "HTTP.Route-2"}, {"attribute": "a", "from": "scope", "column": "b"}]'
    monkeypatch.setenv("NEVE_TELEMETRY__PROMOTE", promote)
    first, second = load().settings.telemetry.promote
    assert (first.column_name, first.source, first.type) == ("http_route_2", "record", "string")
    assert (second.column_name, second.source) == ("b", "scope")


def test_promotions_that_collide_are_refused_by_both_names():
    said = problem(
        "telemetry:\n  promote:\n    - {attribute: http.route}\n"
        "    - {attribute: http/route, from: resource}\n"
    )
    assert "record attribute http.route and the resource attribute http/route" in said
    assert "both become the column http_route" in said


def test_unknown_keys_in_a_list_are_answered_with_the_nearest():
    entry = "{attribute: a, form: resource}"
    said = problem(f"telemetry:\n  promote: [{entry}]\n")
    assert "unknown key telemetry.promote.0.form; did you mean from?" in said


def test_a_promoted_column_has_a_plain_name_and_a_known_type():
    assert "column" in problem("telemetry: {promote: [{attribute: a, column: A.B}]}")
    assert "'string', 'int', 'double' or 'bool'" in problem(
        "telemetry: {promote: [{attribute: a, type: long}]}"
    )


LONG = "0123456789abcdef"


@pytest.mark.parametrize("token", ["${OTLP_TOKEN}", " ${OTLP_TOKEN} ", "", "  ", "${NOT_SET:-}"])
@pytest.mark.parametrize("entry", ['"{}"', '{{name: shop, token: "{}"}}'])
def test_an_empty_token_is_refused_by_the_key_and_line_it_stands_at(monkeypatch, token, entry):
    monkeypatch.setenv("OTLP_TOKEN", "")
    allowed = "  allow_weak_tokens: true\n"
    said = problem(f'receive:\n{allowed}  tokens:\n    - "{LONG}"\n    - {entry.format(token)}\n')
    assert said == ("neve.yaml:5: receive.tokens.1: the token is empty, and would let everybody in")


def test_a_short_token_is_refused_unless_that_is_allowed():
    said = problem('receive: {tokens: ["0123456789abcde"]}')
    assert "neve.yaml:1: receive.tokens.0: the token has fewer than 16 characters" in said
    assert "0123" not in said
    write('receive: {tokens: ["short"], allow_weak_tokens: true}')
    [entry] = load().settings.receive.tokens
    assert entry.token.get_secret_value() == "short"


def test_tokens_are_texts_or_named_entries_in_the_file_and_the_environment(monkeypatch):
    write(
        f'receive:\n  tokens: ["{LONG}", {{name: shop, token: "{LONG}-2", '
        "max_bytes_per_second: 1000}]"
    )
    plain, shop = load().settings.receive.tokens
    assert (plain.name, plain.max_bytes_per_second) == (None, None)
    assert plain.token.get_secret_value() == LONG
    assert (shop.name, shop.max_bytes_per_second) == ("shop", 1000)
    value = f'["{LONG}", {{"name": "shop", "token": "{LONG}-3"}}]'
    monkeypatch.setenv("NEVE_RECEIVE__TOKENS", value)
    assert [entry.name for entry in load().settings.receive.tokens] == [None, "shop"]
    monkeypatch.setenv("NEVE_RECEIVE__TOKENS", '[""]')
    with pytest.raises(ConfigError, match=r"NEVE_RECEIVE__TOKENS: receive\.tokens\.0: .* empty"):
        load()


def test_white_space_around_a_token_is_cut_as_files_end_in_a_line_break(monkeypatch):
    monkeypatch.setenv("OTLP_TOKEN", f"{LONG}\n")
    write('receive: {tokens: ["${OTLP_TOKEN}"]}')
    assert load().settings.receive.tokens[0].token.get_secret_value() == LONG


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (f'"{LONG} x"', "no white space"),
        (f'"{LONG}é"', "printable ASCII"),
        (f'"{LONG}\\x07"', "printable ASCII"),
        ("1234567890123456789", "tokens.0: write a text in quotes"),
        (f'"{LONG}", "{LONG}"', "entries 0 and 1 are the same token"),
        (f'{{name: "", token: "{LONG}"}}', "tokens.0: a name has printable characters"),
        (f'{{name: " a", token: "{LONG}"}}', "tokens.0: a name has printable characters"),
        (f'{{name: "a\\nb", token: "{LONG}"}}', "tokens.0: a name has printable characters"),
        (f'{{name: {"a" * 65}, token: "{LONG}"}}', "64 characters at most"),
        (f'{{name: a, token: "{LONG}", max_bytes_per_second: 0}}', "greater than 0"),
        (f'{{name: a, tokn: "{LONG}"}}', "did you mean token?"),
        ("{name: a}", "receive.tokens.0.token: Field required"),
        (
            f'{{name: a, token: "{LONG}"}}, {{name: a, token: "{LONG}2", max_bytes_per_second: 9}}',
            "entries 0 and 1 are both 'a': give them the same max_bytes_per_second",
        ),
    ],
)
def test_tokens_that_could_not_work_are_refused_and_never_quoted(entries, said):
    message = problem(f"receive:\n  tokens: [{entries}]")
    assert said in message
    assert LONG not in message


def test_several_tokens_may_have_one_name_for_rotation():
    entry = '{{name: a, token: "{}", max_bytes_per_second: 9}}'
    write(f"receive: {{tokens: [{entry.format(LONG)}, {entry.format(LONG + '2')}]}}")
    assert len(load().settings.receive.tokens) == 2


def test_tokens_are_neither_shown_nor_left_out_of_what_is_hidden():
    write(f'receive: {{tokens: ["{LONG}-1", {{name: shop, token: "{LONG}-2"}}]}}')
    loaded = load()
    [shown] = [value for key, value, _ in shown_values(loaded) if key == "receive.tokens"]
    assert shown == ({"token": HIDDEN}, {"name": "shop", "token": HIDDEN})
    assert LONG not in repr(loaded)
    assert secrets(loaded.settings) == {f"{LONG}-1", f"{LONG}-2"}
