"""The list of servers: only what the owner of the computer wrote, keys apart from it."""

import pytest
from qwen3_tts_morph.serve.remote.servers import Server, find_server, key_variable, listed_servers


def test_servers_and_their_keys_come_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("MORPH_TTS_SERVERS", "studio = http://10.0.0.5:8765/v1/, farm=https://tts.example.org,")
    monkeypatch.setenv("MORPH_TTS_KEY_FARM", " secret ")
    assert listed_servers() == {
        "studio": Server("studio", "http://10.0.0.5:8765"),
        "farm": Server("farm", "https://tts.example.org", "secret"),
    }
    assert find_server("farm").key == "secret" and "secret" not in repr(find_server("farm"))
    assert key_variable("my farm-2") == "MORPH_TTS_KEY_MY_FARM_2"


def test_only_the_first_of_several_addresses_is_used_and_the_log_says_so(monkeypatch, caplog) -> None:
    monkeypatch.setenv("MORPH_TTS_SERVERS", "farm = http://10.0.0.5:8765/v1  http://10.0.0.6:8765")
    assert find_server("farm") == Server("farm", "http://10.0.0.5:8765")
    assert "server farm has 2 addresses: only the first is used" in caplog.text


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("http://10.0.0.5:8765", "write name=address"),
        ("studio=10.0.0.5:8765", "address of server studio"),
        ("studio=", "address of server studio"),
        ("studio=10.0.0.5 http://10.0.0.6", "address of server studio"),
        ("studio=file:///etc/passwd", "address of server studio"),
        ("studio=http://ann:secret@10.0.0.5", "address of server studio"),
        ("studio=http://10.0.0.5/?x=1", "address of server studio"),
        ("studio=http://[", "address of server studio is not http://HOST:PORT"),
        ("studio=http://127.0.0.1:99999", "address of server studio .* with a port from 1 to 65535"),
        ("studio=http://127.0.0.1:0", "address of server studio"),
        ("studio=http://127.0.0.1:x", "address of server studio"),
        ("a/b=http://10.0.0.5", "a server's name"),
    ],
)
def test_entries_that_cannot_be_used(monkeypatch, listed: str, words: str) -> None:
    monkeypatch.setenv("MORPH_TTS_SERVERS", listed)
    with pytest.raises(ValueError, match=words) as caught:
        listed_servers()
    assert "secret" not in str(caught.value)


def test_other_names_are_refused_with_those_there_are(monkeypatch) -> None:
    monkeypatch.setenv("MORPH_TTS_SERVERS", "studio=http://10.0.0.5:8765")
    with pytest.raises(ValueError, match="choose one of studio"):
        find_server("http://10.0.0.5:8765")
    monkeypatch.delenv("MORPH_TTS_SERVERS")
    with pytest.raises(ValueError, match="list it, as in MORPH_TTS_SERVERS="):
        find_server("studio")
