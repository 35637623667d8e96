"""The scheduler alone: random schedules against a clock of their own, and each rule of its policy."""

import math
import random
from dataclasses import dataclass, field

import pytest
from qwen3_tts_morph.morph.batch.scheduler import (
    AGING,
    AHEAD_S,
    BEGUN_S,
    BROKEN_AFTER,
    OFFLINE_SHARE,
    SPREAD_S,
    Busy,
    Scheduler,
)

SCHEDULES = 1000
PIECE_S = 1.0  # of a row


@dataclass(eq=False)
class Said:
    """An utterance whose pieces each play for ``plays_s``."""

    caller: str = "a"
    is_live: bool = True
    pieces: int = 1
    order: int = 0
    group: tuple[object, ...] = (5,)
    is_alone = False
    device = -1
    length: float = 1.0
    plays_s: float = 4.0
    failed_on: set[int] = field(default_factory=set)
    has_text: bool = True
    dry_at: float | None = None
    running: int = 0
    first_s: float | None = None
    left_s = 1.0

    @property
    def wants(self) -> int:
        if not self.has_text or (self.is_live and self.running):
            return 0
        left = self.pieces - self.running
        return min(left, 1) if self.is_live else left

    def deadline(self, now: float) -> float:
        return now if self.dry_at is None else self.dry_at


class World:
    """Devices whose pieces take ``PIECE_S`` each; it checks the rules of every admission."""

    def __init__(self, rows: list[int], **bounds: float):
        self.scheduler, self.rows = Scheduler(rows, **bounds), rows
        self.now, self.running = 0.0, list[tuple[float, int, Said]]()
        self.given = list[Said]()

    def submit(self, *said: Said) -> None:
        self.scheduler.submit(said, self.now)

    def admit(self) -> None:
        for device, rows in enumerate(self.rows):
            free = rows - sum(one == device for _, one, _ in self.running)
            for said in self.scheduler.next(device, free, self.now):
                assert device not in said.failed_on and said.wants > 0
                said.running += 1
                self.given.append(said)
                self.running.append((self.now + PIECE_S, device, said))
            assert sum(one == device for _, one, _ in self.running) <= rows

    def step(self, seconds: float = PIECE_S) -> None:
        """Admit, let time pass, and end the pieces that are over."""
        self.admit()
        self.now += seconds
        over = [one for one in self.running if one[0] <= self.now]
        for one in over:
            said = one[2]
            said.pieces -= 1
            if said.is_live:
                said.first_s = self.now if said.first_s is None else said.first_s
                said.dry_at = max(said.deadline(self.now), self.now) + said.plays_s
            self.running.remove(one)
            said.running -= 1
            self.scheduler.release(said, self.now)
            self.scheduler.requeue(said, self.now)
            if not said.pieces:
                self.scheduler.remove(said)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()


def play(seed: int) -> None:
    chance = random.Random(seed)
    rows = [chance.randint(1, 8) for _ in range(chance.randint(1, 3))]
    world, said = World(rows), list[Said]()
    for _ in range(chance.randint(1, 30)):
        kind = chance.random()
        if kind < 0.5:
            new = [
                Said(
                    chance.choice("abc"),
                    chance.random() < 0.6,
                    chance.randint(1, 6),
                    chance.choice((0, 0, 0, 1)),
                    (chance.choice((1, 5, 15)),),
                    chance.random(),
                    chance.choice((0.3, 4.0)),
                    {0} if len(rows) > 1 and chance.random() < 0.2 else set(),
                    chance.random() < 0.9,
                )
                for _ in range(chance.randint(1, 6))
            ]
            world.submit(*new)
            said += new
        elif said and kind < 0.6:
            gone = chance.choice(said)
            gone.pieces = 0
            world.running = [one for one in world.running if one[2] is not gone]
            world.scheduler.remove(gone)
        elif said and kind < 0.75:
            changed = chance.choice(said)
            changed.has_text = not changed.has_text
            world.scheduler.requeue(changed, world.now)
        else:
            world.step(chance.random() * 2)
        held = {id(one) for _, _, one in world.running}
        assert len(world.scheduler.utterances) == sum(one.pieces > 0 for one in said)
        assert len(world.scheduler._with_rows) == len(held)
        for device in range(len(rows)):
            groups = sorted(world.scheduler.groups(device, world.now))
            assert groups == sorted({one.group for _, on, one in world.running if on == device})
    for one in said:
        one.has_text = True
        world.scheduler.requeue(one, world.now)
    left = sum(one.pieces for one in said)
    world.run(left + len(said) + 2)  # a step ends one piece at least
    assert not world.running and not world.scheduler.utterances and not any(one.pieces for one in said)
    assert not world.scheduler._with_rows and not world.scheduler._queues[True]
    assert not world.scheduler.wanted


@pytest.mark.parametrize("seed", range(20))
def test_every_utterance_of_a_random_schedule_ends_and_no_row_is_given_twice(seed: int) -> None:
    for number in range(SCHEDULES // 20):
        play(seed * SCHEDULES + number)


def test_a_new_client_waits_for_one_piece_beside_six_long_texts() -> None:
    world, new = World([2]), Said("new")
    world.submit(*(Said(name, pieces=60) for name in "abcdef"))
    world.run(20)
    world.submit(new)
    world.run(2)
    assert new.first_s is not None


def test_lines_of_one_caller_share_its_rows_although_the_device_is_too_slow() -> None:
    world, new = World([1]), Said()
    texts = [Said(pieces=60, plays_s=0.1) for _ in range(2)]
    for text in texts:
        text.left_s = 60.0
    world.submit(*texts)
    world.run(9)
    world.submit(new)
    world.run(3)
    assert new.first_s is not None


def test_all_long_texts_play_without_a_gap_while_the_device_is_fast_enough() -> None:
    world, texts = World([2]), [Said(name, pieces=40) for name in "abcdef"]
    world.submit(*texts)
    world.run(8)
    for _ in range(80):
        world.step()
        assert all(one.deadline(world.now) >= world.now for one in texts)


def test_a_player_that_has_more_than_a_moment_left_waits_for_a_new_line() -> None:
    world, ahead, new = World([1]), Said("a", pieces=3), Said("b")
    world.submit(ahead)
    world.step()
    world.submit(new)
    world.run(2)
    assert world.given == [ahead, new, ahead]


def test_of_players_that_are_dry_the_one_with_least_left_goes_first() -> None:
    world, long, new = World([1]), Said(pieces=9, plays_s=0.1), Said(pieces=2, plays_s=0.1)
    long.left_s = 15.0
    world.submit(long)
    world.run(3)
    world.submit(new)
    world.run(2)
    assert world.given[3:] == [new, new]
    long.left_s = BEGUN_S + 0.5 + AGING * (world.now - long.dry_at)
    world.scheduler.requeue(long, world.now)
    world.submit(new := Said())
    world.admit()
    assert world.given[5] is long, "it plays, and has been dry for long"


def test_a_stream_gives_up_its_row_within_a_piece() -> None:
    world, long, new = World([1]), Said(pieces=9), Said()
    world.submit(long)
    world.step()
    world.admit()
    assert world.scheduler.yields(0, world.now) is None
    world.submit(new)
    assert world.scheduler.yields(0, world.now) is long, "it is ahead of its player"
    long.dry_at = world.now + AHEAD_S / 2
    long.left_s = 9.0
    assert world.scheduler.yields(0, world.now) is None, "a late start is better than a gap"
    long.left_s = 15.0
    assert world.scheduler.yields(0, world.now) is long, "the new line's player is dry, and it has less to say"
    new.dry_at = world.now + AHEAD_S / 4
    world.scheduler.requeue(new, world.now)
    assert world.scheduler.yields(0, world.now) is None


def test_the_caller_with_the_fewest_rows_goes_first() -> None:
    world, late = World([4]), Said("b")
    world.submit(*(Said("a", pieces=3) for _ in range(10)))
    world.step(PIECE_S / 2)
    world.submit(late)
    world.step(PIECE_S / 2)
    world.admit()
    assert late in world.given[4:6]


def test_a_lower_order_goes_first_whatever_it_is() -> None:
    world = World([1])
    last, first = Said(order=1), Said(order=0, is_live=False)
    world.submit(last)
    world.submit(first)
    world.run(2)
    assert world.given == [first, last]


def test_offline_utterances_take_what_streams_leave_the_longest_of_a_submission_first() -> None:
    world, stream = World([2]), Said()
    short, long = Said(is_live=False, length=1), Said(is_live=False, length=9)
    later = Said(is_live=False, length=99)
    world.submit(short, long)
    world.submit(later)
    world.submit(stream)
    world.run(3)
    assert world.given == [stream, long, short, later]


@pytest.mark.parametrize("rows", (1, 2, 4, 8))
def test_a_list_ends_beside_streams_that_want_all_rows(rows: int) -> None:
    world, pieces = World([rows]), 24
    world.submit(*(Said(f"caller {number}", pieces=500, plays_s=0.5) for number in range(3 * rows)))
    world.step()
    world.submit(*(Said("list", is_live=False, length=number) for number in range(pieces)))
    world.run(OFFLINE_SHARE * pieces + OFFLINE_SHARE)
    assert sum(not one.is_live for one in world.given) == pieces


def test_a_list_gives_up_rows_within_a_piece_beyond_its_quarter_to_streams_that_cannot_wait() -> None:
    world, listed, more = World([4]), Said("list", is_live=False, pieces=2), Said("list", is_live=False, pieces=64)
    world.submit(listed, more)
    world.admit()
    assert listed.running == more.running == 2 and world.scheduler.yields(0, world.now) is None
    ahead = Said(dry_at=world.now + AHEAD_S + 0.1)
    world.submit(ahead)
    assert world.scheduler.yields(0, world.now) is None, "its player has time"
    world.submit(*(Said() for _ in range(4)))
    for one in (more, more, listed):
        assert world.scheduler.yields(0, world.now, free=1) is None, "no row need change hands"
        assert world.scheduler.yields(0, world.now) is one
        world.scheduler.release(one, world.now)
        assert world.scheduler.next(0, 1, world.now)[0].is_live
    assert world.scheduler.yields(0, world.now) is None, "a list keeps a quarter of the rows"


def test_a_list_gives_up_no_row_to_a_stream_of_a_higher_order() -> None:
    world = World([2])
    world.submit(Said(is_live=False, pieces=2))
    world.admit()
    world.submit(Said(order=1))
    assert world.scheduler.yields(0, world.now) is None


def test_all_pieces_of_an_offline_utterance_get_rows_together() -> None:
    world, said = World([4]), Said(is_live=False, pieces=3)
    world.submit(said)
    world.step()
    assert world.given == [said] * 3 and not world.scheduler.utterances


def test_queued_and_silent_utterances_have_bounds_of_their_own() -> None:
    world = World([1], waiting=4)
    world.submit(*(Said("a") for _ in range(3)))
    with pytest.raises(Busy, match="4 lines wait already"):
        world.submit(Said("c"), Said("d"))
    world.submit(Said("b"), *(Said("b", has_text=False) for _ in range(4)))
    with pytest.raises(Busy, match="for their texts"):
        world.submit(Said("c", has_text=False))


def test_groups_make_frames_in_rounds_the_earliest_deadline_first() -> None:
    world = World([8])
    ahead, new, offline = Said(group=(15,), pieces=9), Said(group=(5,)), Said(group=(1,), is_live=False)
    world.submit(ahead)
    world.step()
    world.submit(new, offline)
    world.admit()
    frames = [next(world.scheduler.groups(0, world.now)) for _ in range(7)]
    assert frames == [(5,), (15,), (1,)] * 2 + [(5,)]
    # If the first group waits for text, the loop tries the others, including those that had their turn.
    assert list(world.scheduler.groups(0, world.now)) == [(15,), (1,), (5,)]


def test_a_failed_utterance_goes_to_another_device() -> None:
    world, said = World([1, 1]), Said(failed_on={0})
    world.scheduler.submit([said], 0.0, is_retry=True)
    assert not world.scheduler.next(0, 1, 0.0) and world.scheduler.next(1, 1, 0.0) == [said]


def test_devices_share_new_utterances_and_what_one_leaves_goes_to_the_other() -> None:
    world = World([4, 4])
    world.submit(*(Said(is_live=False) for _ in range(6)))
    world.admit()
    assert sorted(one.device for one in world.given) == [0, 0, 0, 1, 1, 1]
    world.submit(*(Said(is_live=False) for _ in range(2)))
    world.now += SPREAD_S + 0.01
    assert len(world.scheduler.next(0, 1, world.now)) == 1 and world.scheduler.offers(1, world.now)


def test_an_utterance_stays_on_its_device() -> None:
    world, said = World([1, 1]), Said(pieces=9)
    world.submit(said)
    world.run(9)
    assert world.given == [said] * 9 and said.device == 0 and not world.scheduler.utterances


def test_a_device_that_fails_gets_no_more_while_another_is_sound() -> None:
    world = World([1, 1])
    world.submit(Said())
    for device in (0, 1):
        for _ in range(BROKEN_AFTER):
            world.scheduler.note_end([device], True)
        assert world.scheduler.offers(0, world.now) == bool(device), "if all fail, none is left out"


@pytest.mark.parametrize("is_live", [True, False])
def test_a_line_that_has_no_use_for_its_row_gives_it_up_to_one_that_runs_alone(is_live: bool) -> None:
    world, starved, alone = World([2]), Said(pieces=9, dry_at=math.inf), Said(is_live=is_live)
    alone.is_alone = True
    world.submit(starved)
    world.admit()
    world.submit(alone)
    if not is_live:  # it is the next one although a stream waits, too: streams had their share of the rows
        world.submit(Said(dry_at=9.0))
        world.scheduler._passed[0] = 9
    assert not world.scheduler.next(0, 1, world.now)
    assert world.scheduler.yields(0, world.now, free=1) is starved
    world.scheduler.release(starved, world.now)
    assert world.scheduler.next(0, 2, world.now) == [alone]


def test_streams_that_have_no_use_for_a_row_come_after_offline_utterances() -> None:
    world, running, full = World([1]), Said(pieces=9, dry_at=math.inf), Said(dry_at=math.inf)
    offline = Said(is_live=False)
    world.submit(running)
    world.admit()
    world.submit(full, offline)
    assert world.scheduler.yields(0, world.now) is running
    world.scheduler.release(running, world.now)
    world.scheduler.requeue(running, world.now)
    assert world.scheduler.next(0, 1, world.now) == [offline]
