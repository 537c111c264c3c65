"""A URL has one normal form, and what is unclear is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import Invalid
from homing.model import Target
from homing.policy.url import host_of, parse_url


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        pytest.param("https://example.com/a", "https://example.com/a", id="normal already"),
        pytest.param("HTTPS://Example.COM/A", "https://example.com/A", id="lower-cased"),
        pytest.param("https://example.com", "https://example.com/", id="empty path"),
        pytest.param("https://example.com?a=B", "https://example.com/?a=B", id="only a query"),
        pytest.param("https://example.com?", "https://example.com/?", id="an empty query"),
        pytest.param("https://example.com./x", "https://example.com/x", id="trailing dot"),
        pytest.param("https://example.com:443/", "https://example.com/", id="default port"),
        pytest.param("http://example.com:80/", "http://example.com/", id="default port of http"),
        pytest.param("http://example.com:443/", "http://example.com:443/", id="other port"),
        pytest.param("http://example.com:/", "http://example.com/", id="no port after its colon"),
        pytest.param("http://example.com:0080/", "http://example.com/", id="a padded port"),
        pytest.param("http://a:65535/", "http://a:65535/", id="the highest port"),
        pytest.param("http://a/b#c?d", "http://a/b", id="fragment dropped"),
        pytest.param("http://a#c", "http://a/", id="fragment without a path"),
        pytest.param(
            "http://a/%7e%7E%2f?q=%zz", "http://a/%7e%7E%2f?q=%zz", id="percent untouched"
        ),
        pytest.param("http://a/../b//c/.", "http://a/../b//c/.", id="dots in the path untouched"),
        pytest.param("http://a/b?x=1&x=2;@:/?", "http://a/b?x=1&x=2;@:/?", id="query untouched"),
        pytest.param("http://a/@b:c", "http://a/@b:c", id="an at sign in the path is no user"),
        pytest.param("http://Bücher.de/", "http://xn--bcher-kva.de/", id="IDNA"),
        pytest.param("http://faß.de/", "http://xn--fa-hia.de/", id="IDNA 2008 keeps ß"),
        pytest.param("http://例え。jp/", "http://xn--r8jz45g.jp/", id="an ideographic full stop"),
        pytest.param("http://XN--Bcher-KVA.de/", "http://xn--bcher-kva.de/", id="already encoded"),
        pytest.param("http://r3---sn.ü.de/", "http://r3---sn.xn--tda.de/", id="odd ASCII labels"),
        pytest.param("http://127.0.0.1./", "http://127.0.0.1/", id="IPv4 with a trailing dot"),
        pytest.param("http://[0:0:0:0:0:0:0:1]/", "http://[::1]/", id="IPv6 compressed"),
        pytest.param("http://[2001:DB8::A]:80/", "http://[2001:db8::a]/", id="IPv6 lower-cased"),
        pytest.param("http://[::ffff:1.2.3.4]/", "http://[::ffff:102:304]/", id="IPv4 in IPv6"),
        pytest.param("http://1.example/", "http://1.example/", id="a label of digits"),
    ],
)
def test_the_normal_form_is(text: str, normal: str) -> None:
    assert parse_url(text)[0] == normal
    assert parse_url(normal)[0] == normal


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (
            "https://Example.com/a?b#c",
            Target("https", "example.com", 443, "/a?b", "example.com"),
        ),
        ("http://example.com:8080", Target("http", "example.com", 8080, "/", "example.com:8080")),
        ("http://[::1]:8080/x", Target("http", "::1", 8080, "/x", "[::1]:8080")),
        ("http://10.0.0.1/", Target("http", "10.0.0.1", 80, "/", "10.0.0.1")),
    ],
)
def test_the_parts_are_what_a_request_needs(text: str, target: Target) -> None:
    normal, found = parse_url(text)
    assert found == target
    assert host_of(normal) == target.host


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://a/" + "b" * (2048 - 9), id="2048 characters"),
        pytest.param("http://" + "a" * 63 + "/", id="a label of 63"),
        pytest.param("http://" + "a." * 126 + "a/", id="a name of 253"),
        pytest.param("http://a:1/", id="the lowest port"),
        pytest.param("http://255.255.255.255/", id="the highest address"),
        pytest.param("http://0.0.0.0/", id="the lowest address"),
        pytest.param("http://[::ffff:102:304]/", id="IPv4 in IPv6"),
        pytest.param("http://[::ffff:ffff:ffff]/", id="the highest IPv4 in IPv6"),
    ],
)
def test_what_is_at_the_limit_is_taken_as_it_is(url: str) -> None:
    assert parse_url(url)[0] == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "http://", id="nothing"),
        pytest.param("example.com", "http://", id="no scheme"),
        pytest.param("ftp://example.com/", "http://", id="another scheme"),
        pytest.param("file:///etc/passwd", "http://", id="a file"),
        pytest.param("javascript:alert(1)", "http://", id="a script"),
        pytest.param("http:/example.com", "http://", id="one slash"),
        pytest.param("//example.com/", "http://", id="a relative reference"),
        pytest.param("http://", "host", id="no host"),
        pytest.param("http:///path", "host", id="an empty host"),
        pytest.param("http://:80/", "host", id="only a port"),
        pytest.param("http://./", "host", id="only a dot"),
        pytest.param("http://#x", "host", id="only a fragment"),
        pytest.param("http://user@example.com/", "user", id="a user"),
        pytest.param("http://user:pass@example.com/", "user", id="a password"),
        pytest.param("http://@example.com/", "user", id="an empty user"),
        pytest.param("http://a/ b", "whitespace", id="a space"),
        pytest.param(" http://a/", "whitespace", id="a space in front"),
        pytest.param("http://a/\n", "whitespace", id="a line feed"),
        pytest.param("http://a/\r\nX: y", "whitespace", id="a smuggled header"),
        pytest.param("http://a\x00/", "control", id="a null"),
        pytest.param("http://a/\x7f", "control", id="a delete character"),
        pytest.param("http://a\\@b/", "backslash", id="a backslash"),
        pytest.param("http://a/ü", "percent-encode", id="not ASCII in the path"),
        pytest.param("http://a/?ü", "percent-encode", id="not ASCII in the query"),
        pytest.param("http://a/\u2028", "percent-encode", id="a Unicode line separator"),
        pytest.param("http://[fe80::1%25eth0]/", "zone", id="a zone id"),
        pytest.param("http://[fe80::1%eth0]/", "zone", id="a bare zone id"),
        pytest.param("http://[::1/", "IPv6", id="an open bracket"),
        pytest.param("http://[::1]x/", "IPv6", id="something after the bracket"),
        pytest.param("http://[]/", "IPv6", id="empty brackets"),
        pytest.param("http://[127.0.0.1]/", "IPv6", id="IPv4 in brackets"),
        pytest.param("http://[v1.a]/", "IPv6", id="an address of the future"),
        pytest.param("http://::1/", "host", id="IPv6 without brackets"),
        pytest.param("http://0177.0.0.1/", "IPv4", id="octal"),
        pytest.param("http://0x7f.0.0.1/", "IPv4", id="hexadecimal"),
        pytest.param("http://127.0.0.0x1/", "IPv4", id="hexadecimal at the end"),
        pytest.param("http://127.1/", "IPv4", id="short"),
        pytest.param("http://2130706433/", "IPv4", id="one number"),
        pytest.param("http://0x7f000001/", "IPv4", id="one hexadecimal number"),
        pytest.param("http://0/", "IPv4", id="zero"),
        pytest.param("http://0x/", "IPv4", id="an empty hexadecimal number"),
        pytest.param("http://256.0.0.1/", "IPv4", id="over 255"),
        pytest.param("http://1.2.3.4.5/", "IPv4", id="five numbers"),
        pytest.param("http://127.0.0.01/", "IPv4", id="a leading zero"),
        pytest.param("http://a.b.1/", "IPv4", id="a name that ends in a number"),
        pytest.param("http://１２７.0.0.1/", "IPv4", id="full-width digits"),
        pytest.param("http://127。0。0。1/", "IPv4", id="ideographic dots in an address"),
        pytest.param("http://①②⑦.0.0.1/", "IPv4", id="circled digits"),
        pytest.param("http://a:0/", "port", id="port 0"),
        pytest.param("http://a:65536/", "port", id="port 65536"),
        pytest.param("http://a:-1/", "port", id="a negative port"),
        pytest.param("http://a:http/", "port", id="a named port"),
        pytest.param("http://a:80:80/", "port", id="two ports"),
        pytest.param("http://a:٨٠/", "port", id="a port in another script"),
        pytest.param("http://a..b/", "label", id="an empty label"),
        pytest.param("http://a../", "label", id="two trailing dots"),
        pytest.param("http://.a/", "label", id="a leading dot"),
        pytest.param("http://-a.com/", "label", id="a leading hyphen"),
        pytest.param("http://a-.com/", "label", id="a trailing hyphen"),
        pytest.param("http://a_b.com/", "label", id="an underscore"),
        pytest.param("http://a%2eb/", "label", id="percent-encoding in the host"),
        pytest.param("http://" + "a" * 64 + "/", "label", id="a label of 64"),
        pytest.param("http://" + "a." * 127 + "com/", "253", id="a name of over 253"),
        pytest.param("http://a／b/", "label", id="a full-width slash"),
        pytest.param("http://a＠b/", "label", id="a full-width at sign"),
        pytest.param("http://\ud800.com/", "international", id="half a surrogate pair"),
        pytest.param("http://❤.com/", "international", id="a heart"),
        pytest.param("http://a/" + "b" * 2040, "2048", id="too long"),
        pytest.param("http://é/" + "b" * 2036, "2048", id="too long once it is encoded"),
    ],
)
def test_what_is_unclear_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_url(text)
    (problem,) = refused.value.problems
    assert problem.field == "url"
    assert reason in problem.reason


PIECES = st.lists(
    st.one_of(
        st.sampled_from(
            ["http://", "https://", "a", "Ex", ".", "..", ":", "80", "443", "[", "]", "::1", "/"]
        ),
        st.sampled_from(["?", "#", "@", "%41", "0x7f", "127", "ü", "。", "ß", "xn--", "-", "１"]),
        st.text(max_size=3),
    ),
    max_size=12,
).map("".join)


@given(st.one_of(PIECES, PIECES.map(lambda text: "http://" + text), st.text()))
def test_the_normal_form_of_a_normal_form_is_itself(text: str) -> None:
    try:
        normal, target = parse_url(text)
    except Invalid:
        return
    assert parse_url(normal) == (normal, target)
    assert normal == f"{target.scheme}://{target.authority}{target.path}"
    assert normal.isascii()
    assert target.host == target.host.lower()
