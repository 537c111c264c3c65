"""Every key of a TOML file is found in its line."""

from __future__ import annotations

from homing.sim.toml_lines import lines_of

TEXT = '''# a comment
seed = 7
a.b = 1
[policy]
x = """
many # no comment
lines
"""
y = 'it"s'
[[endpoints]]
name = "p"
outages = [
  { from = "2h", to = "9h" },  # with ] and }
  # { not = "this" }
  { from = "a,]}#", to = "\\"quoted\\"" }]
[[endpoints]]
"na me" = 1979-05-27T07:32:00Z # a time
[[endpoints.outages]]
z = 1
[[endpoints.outages]]
z = [[1, 2], [
  3]]
[endpoints.more.deep]
v = true
[[a.a]]
w = 1
'''


def test_every_key_is_found_in_its_line() -> None:
    lines = lines_of(TEXT)
    assert lines["seed",] == 2
    assert lines["a", "b"] == 3
    assert lines["policy", "x"] == 5
    assert lines["policy", "y"] == 9
    assert lines["endpoints", 0] == 10
    assert lines["endpoints", 0, "outages"] == 12
    assert lines["endpoints", 0, "outages", 0, "to"] == 13
    assert lines["endpoints", 0, "outages", 1] == 15
    assert lines["endpoints", 0, "outages", 1, "to"] == 15
    assert lines["endpoints", 1] == 16
    assert lines["endpoints", 1, "na me"] == 17
    assert lines["endpoints", 1, "outages", 1, "z"] == 21
    assert lines["endpoints", 1, "outages", 1, "z", 1, 0] == 22
    assert lines["endpoints", 1, "more", "deep", "v"] == 24
    assert lines["a", "a", 0, "w"] == 26


def test_an_empty_file_has_one_line() -> None:
    assert lines_of("") == {(): 1}
    assert lines_of("# nothing\n") == {(): 1}
