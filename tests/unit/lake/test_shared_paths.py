"""A local warehouse or buffer on a cluster: refused, unless it lies on a mount that is shared."""

import pytest

import neve
from neve.config import Settings
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.spec import consolidate_spec
from neve.errors import ConfigError
from neve.lake.shared_paths import check_result, probe_from_task, require_shared

MASTER = "spark://nowhere:7077"


def settings(tmp_path, *shared, buffer="s3://bucket/buffer"):
    return Settings.model_validate(
        {
            "catalog": {
                "uri": f"sqlite:///{tmp_path}/catalog.db",
                "warehouse": f"{tmp_path}/warehouse",
            },
            "spark": {"master": MASTER, "shared_paths": shared},
            "buffer": {"location": buffer},
        }
    )


def test_a_local_warehouse_is_refused_before_spark_starts(tmp_path):
    with (
        neve.open(settings(tmp_path)) as lake,
        pytest.raises(ConfigError, match=rf"catalog\.warehouse .*local path.*{MASTER}") as error,
    ):
        _ = lake.spark
    assert "spark.shared_paths" in error.value.hint


def test_a_local_buffer_is_taken_on_a_shared_mount_only(tmp_path):
    local = f"{tmp_path}/buffer"
    with neve.open(settings(tmp_path, f"{tmp_path}/other", buffer=local)) as lake:
        spec = consolidate_spec(lake.settings)
        with pytest.raises(ConfigError, match=r"buffer\.location .*local path"):
            Consolidator(lake, spec, list)
    with neve.open(settings(tmp_path, str(tmp_path), buffer=local)) as lake:
        Consolidator(lake, consolidate_spec(lake.settings), list)


@pytest.mark.parametrize(
    ("path", "is_shared"),
    [
        ("/mnt/lake", True),
        ("/mnt/lake/warehouse", True),
        ("/mnt/lake2", False),
        ("/mnt/lake/../own", False),
        ("/mnt", False),
    ],
)
def test_a_path_is_shared_if_a_mount_contains_it(path, is_shared):
    spark = Settings.model_validate({"spark": {"master": MASTER, "shared_paths": ["/mnt/lake/"]}})
    if is_shared:
        require_shared(spark.spark, "catalog.warehouse", path)
        return
    with pytest.raises(ConfigError, match="local path"):
        require_shared(spark.spark, "catalog.warehouse", path)


def test_this_machine_shares_everything_with_itself():
    require_shared(Settings().spark, "catalog.warehouse", "/anywhere")


def test_a_mount_is_named_by_an_absolute_path():
    with pytest.raises(ValueError, match="not an absolute path"):
        Settings.model_validate({"spark": {"shared_paths": ["lake"]}})


def test_each_way_a_disk_can_differ_is_noticed(tmp_path):
    token = "t0ken"
    with pytest.raises(ConfigError, match=r"/lake is not shared with host .*: No such file"):
        check_result("/lake", tmp_path, token, probe_from_task(str(tmp_path), token))
    (tmp_path / "driver").write_text("of another cluster")
    with pytest.raises(ConfigError, match="another file in place of the driver's"):
        check_result("/lake", tmp_path, token, probe_from_task(str(tmp_path), token))
    (tmp_path / "driver").write_text(token)
    result = probe_from_task(str(tmp_path), token)
    check_result("/lake", tmp_path, token, result)
    (tmp_path / result.file).write_text("of another cluster")
    with pytest.raises(ConfigError, match="the driver reads something else"):
        check_result("/lake", tmp_path, token, result)
    (tmp_path / result.file).unlink()
    with pytest.raises(ConfigError, match="does not see what it wrote"):
        check_result("/lake", tmp_path, token, result)
