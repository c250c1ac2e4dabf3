"""No two files of a table become one, and two spellings of a file stay one."""

from itertools import product

from neve.move.paths import PathMap, Prefix, normal_path

PARTS = ("orders", "orders_2", "a b", "%2F", "+", "ü", "")


def test_files_stay_apart():
    paths = PathMap([Prefix("s3a://b/orders/", "file:/t")], "file:/t/data/elsewhere")
    sources = [
        "/".join((scheme + bucket, *parts, "f"))
        for scheme, bucket, depth in product(("s3://", "s3a://", "/"), "bc", (1, 2))
        for parts in product(PARTS, repeat=depth)
    ]
    targets = {paths.target(source) for source in sources}
    assert len(targets) == len({normal_path(source) for source in sources})
    assert paths.target("s3://b/orders/x%2F y") == "file:/t/x%2F y"
    assert paths.target("s3://b/orders_2/x").startswith("file:/t/data/elsewhere/")
