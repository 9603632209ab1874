# SPDX-License-Identifier: Apache-2.0
"""The client asks again what can be asked again, within its bounds."""

import gc
import socket
import warnings

import anyio
import anyio.lowlevel
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livery.adapters.http_client import (
    Delivery,
    HttpClient,
    HttpFailed,
    KeepAliveTooLong,
    Patience,
    base_url,
    open_http_client,
)
from livery.adapters.http_client.addresses import BadAddress
from livery.adapters.http_client.retries import (
    RETRY_AFTER_SECONDS_MAX,
    delivery_of,
    retry_after_seconds,
)

from .scripted_server import CUT, answer, serving

pytestmark = pytest.mark.anyio

ADDRESSES_OF_LOCALHOST = sorted(
    {str(found[4][0]) for found in socket.getaddrinfo("localhost", None)}
)
CALL_TURNS = 40
"""More turns of the event loop than a call on loopback takes to its connection."""
QUICK = Patience(attempts_max=3, seconds_max=60.0, pause_seconds=0.001)


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


@pytest.mark.case("FC-119")
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_never_can_is_asked_so_often_and_its_answer_shown(
    status: int,
) -> None:
    async with (
        serving(lambda number, request: answer(status)) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):
        reply = await http.request("GET", "/", repeatable=True)

    assert reply.status_code == status
    assert len(server.asked) == QUICK.attempts_max


@pytest.mark.case("FC-119", "FC-120")
async def test_a_refused_connection_is_given_up_within_bounds() -> None:
    base = base_url("127.0.0.1", closed_port())
    async with open_http_client(base, patience=QUICK) as http:
        with pytest.raises(HttpFailed) as failed:
            await http.request("POST", "/", repeatable=False)

    assert failed.value.attempts == QUICK.attempts_max
    assert failed.value.delivery is Delivery.NOT_SENT


@pytest.mark.case("FC-119")
async def test_the_time_bounds_the_attempts_as_well() -> None:
    late = Patience(attempts_max=1000, seconds_max=0.2, pause_seconds=0.05)
    async with (
        serving(lambda number, request: answer(503)) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=late) as http,
    ):
        with anyio.fail_after(60):
            reply = await http.request("GET", "/", repeatable=True)

    assert reply.status_code == 503
    assert len(server.asked) < 10


@pytest.mark.case("FC-119")
async def test_a_wait_that_the_server_asks_for_is_kept() -> None:
    def script(number: int, request: bytes) -> bytes:
        return answer(429, "retry-after: 1") if number == 0 else answer(200)

    async with (
        serving(script) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):
        before = anyio.current_time()
        reply = await http.request("GET", "/", repeatable=True)
        waited = anyio.current_time() - before

    assert reply.status_code == 200
    assert waited >= 1.0


@pytest.mark.case("FC-120")
async def test_a_request_that_may_have_arrived_is_sent_again_only_if_repeatable() -> (
    None
):
    def script(number: int, request: bytes) -> bytes:
        return CUT if number % 2 == 0 else answer(200)

    async with (
        serving(script) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):
        with pytest.raises(HttpFailed) as failed:
            await http.request("POST", "/", repeatable=False, content=b"once")
        once = len(server.asked)
        reply = await http.request("POST", "/", repeatable=False, content=b"two")
        cut = await http.request("PUT", "/", repeatable=True, content=b"three")

    assert failed.value.delivery is Delivery.POSSIBLY_DELIVERED
    assert (once, failed.value.attempts) == (1, 1)
    assert (reply.status_code, cut.status_code) == (200, 200)


@pytest.mark.case("FC-120")
@pytest.mark.parametrize(
    ("fault", "delivery"),
    [
        (httpx.ConnectError("x"), Delivery.NOT_SENT),
        (httpx.ConnectTimeout("x"), Delivery.NOT_SENT),
        (httpx.PoolTimeout("x"), Delivery.NOT_SENT),
        (httpx.UnsupportedProtocol("x"), Delivery.NOT_SENT),
        (httpx.ReadError("x"), Delivery.POSSIBLY_DELIVERED),
        (httpx.ReadTimeout("x"), Delivery.POSSIBLY_DELIVERED),
        (httpx.WriteError("x"), Delivery.POSSIBLY_DELIVERED),
        (httpx.RemoteProtocolError("x"), Delivery.POSSIBLY_DELIVERED),
    ],
)
async def test_the_class_of_a_fault_tells_how_far_it_got(
    fault: httpx.TransportError, delivery: Delivery
) -> None:
    assert delivery_of(fault) is delivery


@pytest.mark.case("FC-120")
async def test_a_bad_name_and_a_bad_protocol_surface_as_what_they_are() -> None:
    async with open_http_client("http://no-such-host.invalid", patience=QUICK) as http:
        with pytest.raises(HttpFailed, match="no-such-host"):
            await http.request("GET", "/", repeatable=True)
    async with open_http_client("gopher://127.0.0.1", patience=QUICK) as http:
        with pytest.raises(HttpFailed) as failed:
            await http.request("GET", "/", repeatable=True)

    assert failed.value.attempts == 1


@pytest.mark.case("FC-120")
async def test_a_tls_failure_is_not_sent_and_surfaces() -> None:
    async with serving(lambda number, request: answer(200)) as server:
        base = base_url("127.0.0.1", server.port, scheme="https")
        async with open_http_client(base, patience=QUICK) as http:
            with pytest.raises(HttpFailed) as failed:
                await http.request("POST", "/", repeatable=False)

    assert failed.value.delivery is Delivery.NOT_SENT


@pytest.mark.case("FC-118")
async def test_fifty_calls_at_once_each_have_their_own_attempts() -> None:
    seen: dict[bytes, int] = {}

    def script(number: int, request: bytes) -> bytes:
        path = request.split(b" ", 2)[1]
        seen[path] = seen.get(path, 0) + 1
        return answer(503) if seen[path] < QUICK.attempts_max else answer(200)

    statuses: list[int] = []
    async with (
        serving(script) as server,
        open_http_client(base_url("127.0.0.1", server.port), patience=QUICK) as http,
    ):

        async def ask(number: int) -> None:
            reply = await http.request("GET", f"/{number}", repeatable=True)
            statuses.append(reply.status_code)

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(ask, number)

    assert statuses == [200] * 50
    assert set(seen.values()) == {QUICK.attempts_max}


@pytest.mark.case("FC-173")
async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with serving(lambda number, request: answer(200)) as inner:
        away = f"location: http://127.0.0.1:{inner.port}/latest/meta-data"
        async with (
            serving(lambda number, request: answer(302, away)) as server,
            open_http_client(base_url("127.0.0.1", server.port)) as http,
        ):
            reply = await http.request("GET", "/", repeatable=True)

    assert reply.status_code == 302
    assert inner.asked == []


@pytest.mark.case("FC-223")
async def test_an_ipv6_host_is_reached() -> None:
    async with (
        serving(lambda number, request: answer(200), "::1") as server,
        open_http_client(base_url("::1", server.port), patience=QUICK) as http,
    ):
        reply = await http.request("GET", "/", repeatable=True)

    assert reply.status_code == 200
    assert b"host: [::1]:" in server.asked[0].lower()


@pytest.mark.case("FC-223")
@pytest.mark.parametrize("host", ADDRESSES_OF_LOCALHOST)
async def test_a_name_with_one_dead_address_is_reached_by_the_other(host: str) -> None:
    async with (
        serving(lambda number, request: answer(200), host) as server,
        open_http_client(base_url("localhost", server.port), patience=QUICK) as http,
    ):
        reply = await http.request("GET", "/", repeatable=True)

    assert reply.status_code == 200


@pytest.mark.case("FC-223")
@given(address=st.ip_addresses(v=6))
def test_every_ipv6_address_makes_a_url_that_leads_there(address: object) -> None:
    url = httpx.URL(base_url(str(address), 8888))

    assert url.host == str(address)
    assert url.port == 8888


@pytest.mark.parametrize("host", ["", "a/b", "user@host", "a b", "[::1", "::zz", "h:1"])
def test_what_is_no_host_is_refused(host: str) -> None:
    if host == "[::1":
        assert base_url(host, 1) == "http://[::1]:1"
    else:
        with pytest.raises(BadAddress):
            base_url(host, 80)


@pytest.mark.case("FC-226")
async def test_a_connection_is_dropped_before_the_server_drops_it() -> None:
    async with (
        serving(lambda number, request: answer(200)) as server,
        open_http_client(
            base_url("127.0.0.1", server.port), keep_alive_seconds=0.05
        ) as http,
    ):
        await http.request("POST", "/", repeatable=False)
        with anyio.fail_after(10):
            while anyio.current_time() and len(server.asked) < 2:
                await anyio.sleep(0.1)
                await http.request("POST", "/", repeatable=False)

    assert server.connections == 2


@pytest.mark.case("FC-226")
async def test_keeping_connections_longer_than_the_server_is_refused_at_the_start() -> (
    None
):
    with pytest.raises(KeepAliveTooLong):
        async with open_http_client(
            "http://127.0.0.1:1", keep_alive_seconds=5, server_keep_alive_seconds=5
        ):
            pass


@given(attempt=st.integers(1, 10_000))
def test_pauses_grow_to_their_bound(attempt: int) -> None:
    patience = Patience()

    assert 0 < patience.pause(attempt) <= patience.pause_seconds_max
    assert patience.pause(attempt) <= patience.pause(attempt + 1)


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        ("", None),
        ("3", 3.0),
        ("999999", 120.0),
        ("soon", None),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("9" * 400, 120.0),
        ("\u00b2", None),
        ("Thu, 01 Jan 99999999999999999999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_bounded(
    told: str, seconds: float | None
) -> None:
    assert retry_after_seconds({"retry-after": told}, now=10.0) == seconds


@given(told=st.text())
def test_no_wait_that_is_asked_for_is_too_odd_to_be_read(told: str) -> None:
    seconds = retry_after_seconds({"retry-after": told}, now=10.0)

    assert seconds is None or 0.0 <= seconds <= RETRY_AFTER_SECONDS_MAX


async def test_the_failure_tells_no_path_and_no_credential() -> None:
    port = closed_port()
    base = f"http://user:hidden@127.0.0.1:{port}"
    async with open_http_client(base, patience=QUICK) as http:
        with pytest.raises(HttpFailed) as failed:
            await http.request("GET", "/secret?key=hidden", repeatable=True)

    assert "hidden" not in str(failed.value)
    assert "secret" not in str(failed.value)


@pytest.mark.parametrize("value", ["hid\nden", "hidden\n", " hidden", "hid\0den"])
async def test_a_header_that_cannot_be_sent_is_not_told(value: str) -> None:
    async with serving(lambda number, request: answer(200)) as server:
        base = base_url("127.0.0.1", server.port)
        failures: list[HttpFailed] = []
        async with open_http_client(base, headers={"Key": value}) as http:
            with pytest.raises(HttpFailed) as failed:
                await http.request("GET", "/", repeatable=True)
            failures.append(failed.value)
        async with open_http_client(base) as http:
            with pytest.raises(HttpFailed) as failed:
                await http.request("GET", "/", repeatable=True, headers={"Key": value})
            failures.append(failed.value)
            with pytest.raises(HttpFailed) as failed:
                async with http.stream("GET", "/", headers={"Key": value}):
                    pass
            failures.append(failed.value)

    for each in failures:
        assert "hid" not in str(each)
        assert "headers" in each.reason
        assert (each.attempts, each.delivery) == (1, Delivery.NOT_SENT)
    assert server.asked == []


async def test_a_header_of_any_letters_is_sent() -> None:
    async with (
        serving(lambda number, request: answer(401)) as server,
        open_http_client(
            base_url("127.0.0.1", server.port), headers={"Key": "clé € \udcff"}
        ) as http,
    ):
        reply = await http.request("GET", "/", repeatable=True, headers={"Two": "ü"})

    assert reply.status_code == 401
    assert "Key: clé € ".encode() + b"\xff\r\n" in server.asked[0]
    assert "Two: ü\r\n".encode() in server.asked[0]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:None/x", "http://fd00::1:80/x", "http://[::1/x"]
)
async def test_an_address_that_is_none_is_a_failure(url: str) -> None:
    async with open_http_client("http://127.0.0.1", patience=QUICK) as http:
        with pytest.raises(HttpFailed, match="its address is none") as failed:
            await http.request("GET", url, repeatable=True)
        with pytest.raises(HttpFailed, match="its address is none"):
            async with http.stream("GET", url):
                pass

    assert failed.value.host == url.split("/")[2]


async def test_a_call_does_not_outlive_its_client() -> None:
    # Wherever it is when the client is closed: what it opens then, nobody would close.
    failures: list[HttpFailed] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with serving(lambda number, request: answer(200)) as server:

            async def ask(http: HttpClient) -> None:
                try:
                    await http.request("GET", "/", repeatable=True)
                except HttpFailed as failed:
                    failures.append(failed)

            for turns in range(CALL_TURNS):
                async with anyio.create_task_group() as tasks:
                    base = base_url("127.0.0.1", server.port)
                    async with open_http_client(base, patience=QUICK) as http:
                        tasks.start_soon(ask, http)
                        for _ in range(turns):
                            await anyio.lowlevel.checkpoint()
            gc.collect()

    deliveries = {failed.delivery for failed in failures}
    assert deliveries == {Delivery.NOT_SENT, Delivery.POSSIBLY_DELIVERED}
    assert {failed.reason for failed in failures} == {"its client is closed"}


async def test_a_streams_opening_does_not_outlive_its_client() -> None:
    async with serving(lambda number, request: answer(200)) as server:
        base = base_url("127.0.0.1", server.port)
        async with open_http_client(base, patience=QUICK) as http:
            pass

        with pytest.raises(HttpFailed, match="its client is closed") as failed:
            async with http.stream("GET", "/"):
                pass

    assert failed.value.delivery is Delivery.NOT_SENT
    assert server.connections == 0
