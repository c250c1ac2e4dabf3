"""Bars that say how many, also where the terminal has no blocks."""

from neve.cli.demo.chart import bar_chart

VALUES = {"0 to 100": 1600, "100 to 200": 820, "200 to 300": 0}


def test_bars_have_the_length_of_their_values():
    assert bar_chart(VALUES, 8, "utf-8").splitlines() == [
        "     0 to 100  ████████ 1,600",
        "   100 to 200  ████▏ 820",
        "   200 to 300   0",
    ]


def test_a_terminal_without_blocks_gets_ascii():
    for encoding in ("ascii", "latin-1", "no-such-encoding", None):
        assert bar_chart(VALUES, 8, encoding).splitlines() == [
            "     0 to 100  ######## 1,600",
            "   100 to 200  #### 820",
            "   200 to 300   0",
        ]
