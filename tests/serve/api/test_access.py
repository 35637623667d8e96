"""Who may ask: keys, hosts, origins; and what needs neither."""

import math
from contextlib import nullcontext

import pytest
from qwen3_tts_morph.serve.api import middleware
from qwen3_tts_morph.serve.api.options import Access, Limits, ServerOptions
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tests.serve.conftest import Client, asked

KEY = "correct-horse"
STREAM = "/v1/audio/speech/stream"


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long those with wrong keys would have waited, seconds."""
    waited: list[float] = []

    async def wait() -> None:
        waited.append(middleware.WRONG_KEY_S)

    for module in ("api.middleware", "routes.text_socket"):
        monkeypatch.setattr(f"qwen3_tts_morph.serve.{module}.slow_down", wait)
    return waited


@pytest.fixture
def keyed(client: Client) -> Client:
    return with_access(client, Access(key=KEY))


def with_access(client: Client, access: Access) -> Client:
    from qwen3_tts_morph.serve.routes.app import App

    return Client(App(client.speaker, ServerOptions(access)), client.speaker)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (None, 401),
        ("Bearer wrong", 401),
        ("Bearer ", 401),
        ("Bearer näh", 401),
        (f"Basic {KEY}", 401),
        (f"Bearer {KEY}", 200),
        (f"bearer  {KEY}", 200),
    ],
)
def test_the_key(keyed: Client, sent: str | None, status: int, waits: list[float]) -> None:
    headers = {} if sent is None else {"authorization": sent.encode("latin-1")}
    response = keyed.post(asked(), headers=headers)
    assert response.status_code == status
    if status == 401:
        assert response.json()["error"]["code"] == "invalid_api_key" and KEY not in response.text
    for path in ("/v1/models", "/v1/audio/voices", "/v1/status", "/metrics"):
        assert keyed.get(path, headers=headers).status_code == status
    for path in ("/", "/page.js", "/health", "/ready"):
        assert keyed.get(path).status_code == 200
    assert len(waits) == (5 if sent is not None and status == 401 else 0), "wrong keys only are slowed down"


def test_a_websocket_may_send_the_key_in_its_first_message(keyed: Client, waits: list[float]) -> None:
    for key, kind in (("wrong", "error"), (KEY, "audio.start")):
        with TestClient(keyed.app).websocket_connect(STREAM, headers={"host": "127.0.0.1"}) as socket:
            socket.send_json({"type": "session.config", "api_key": key, "sampling": {"max_seconds": 0.5}})
            socket.send_json({"type": "input.text", "text": "Hello. "})
            socket.send_json({"type": "input.done"})
            assert socket.receive_json()["type"] == kind
    assert len(waits) == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"host": "localhost:8765"}, 200),
        ({"host": "[::1]:8765"}, 200),
        ({"host": "studio.example"}, 200),
        ({"host": "192.168.1.7:8765", "origin": "http://192.168.1.7:8765"}, 200),
        ({"host": "192.168.1.7:8765", "origin": "http://evil.example"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1"}, 403),
        ({"host": "[127.0.0.1]"}, 403),
        ({"host": "127.0.0.1:port"}, 403),
        ({"host": "evil.example@127.0.0.1"}, 403),
        ({"host": "127.0.0.1/evil"}, 403),
        ({"host": "127.0.0.1?evil"}, 403),
        ({"host": "127.0.0.1#evil"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_hosts_and_origins(client: Client, headers: dict[str, str], status: int) -> None:
    server = with_access(client, Access(hosts=("studio.example",)))
    for path in ("/", "/v1/models", "/health"):
        assert server.get(path, headers=headers).status_code == status
    assert server.post(asked(), headers=headers).status_code == status
    talk = TestClient(server.app).websocket_connect(STREAM, headers={"host": "127.0.0.1", **headers})
    with pytest.raises(WebSocketDisconnect) if status == 403 else nullcontext(), talk as socket:
        socket.send_json({"type": "cancel"})
        assert status == 200


def test_a_request_has_one_host(client: Client) -> None:
    for other in ("127.0.0.1", "evil.example"):
        response = client.get("/v1/models", headers=[("host", "127.0.0.1"), ("host", other)])
        assert response.status_code == 400 and "2 Host headers" in response.json()["error"]["message"]


def test_another_site_that_is_allowed(client: Client) -> None:
    server = with_access(client, Access(origin="https://studio.example"))
    headers = {"origin": "https://studio.example", "sec-fetch-site": "cross-site"}
    response = server.post(asked(), headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "https://studio.example"
    shown = response.headers["access-control-expose-headers"]
    assert all(f"x-{name}" in shown for name in ("speech-seed", "speech-ignored", "request-id"))
    named = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, x-stainless-os"}
    asking = server.run(lambda http: http.options("/v1/audio/speech", headers=headers | named))
    assert asking.status_code == 200
    assert asking.headers["access-control-allow-headers"] == named["access-control-request-headers"]
    other = server.post(asked(), headers={"origin": "https://evil.example"})
    assert other.status_code == 403


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "studio.example"])
def test_others_can_only_reach_a_server_with_a_key(host: str) -> None:
    with pytest.raises(ValueError, match="MORPH_TTS_API_KEY"):
        Access(host)
    assert Access(host, KEY).key == KEY


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_loopback_needs_no_key(host: str) -> None:
    assert Access(host).key == ""


@pytest.mark.parametrize("key", ["two\nlines", " space", "schlüssel"])
def test_keys_that_a_header_cannot_have(key: str) -> None:
    with pytest.raises(ValueError, match="letters and digits"):
        Access(key=key)


def test_a_key_that_can_be_guessed() -> None:
    with pytest.raises(ValueError, match="has 7 characters and can be guessed: use 8 or more"):
        Access(key="battery")
    assert Access(key="battery8").key


@pytest.mark.parametrize("change", [{"rows": 0}, {"port": 70000}, {"seq_groups": 16}, {"waiting": 0}])
def test_options_out_of_range(change) -> None:
    with pytest.raises(ValueError, match=f"(?i)^{next(iter(change))} is .*: choose"):
        ServerOptions(**change)


@pytest.mark.parametrize("origin", ["http://\u2603", "http://a\r\nb", "", " "])
def test_origins_that_a_header_cannot_have(origin: str) -> None:
    with pytest.raises(ValueError, match=r"origin is .*: give \* or an address such as https://studio.example"):
        Access(origin=origin)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["seconds", "idle_seconds", "pause_seconds"])
def test_times_are_finite_and_above_zero(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}: choose a number above 0"):
        Limits(**{name: value})


def test_limits_out_of_range(tmp_path) -> None:
    with pytest.raises(ValueError, match="characters"):
        Limits(characters=0)
    with pytest.raises(ValueError, match="not a folder"):
        ServerOptions(voices=tmp_path / "none")
