"""Lines to train with: recordings of one speaker, checked with their texts, and the talker's examples of them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from ..codec.stream import encode_waveform
from ..hearing.whisper import Whisper, count_errors
from ..model.model import Model, limit_threads
from ..options import FRAME_RATE, GenerateOptions
from ..speech.pieces import normalizer_of
from ..text.duration import text_frames
from ..voice.measure import measure
from ..voice.prompt import Prompt, PromptBuilder, embed_frames
from ..voice.recording import LONGEST_S, SUFFIXES, Recording, prepare_reference, read_recording
from ..voice.voice import Voice

SPOILING = ("speech", "clipped", "noisy")  # faults of a measurement
MOST_ERRORS = 0.5  # wrong words per word of a text; above, it is another text
LEAST_PACE, MOST_PACE = 0.25, 3.0  # of a text, as a share of an ordinary one
# Cosine of two x-vectors. With the demo voice's encoder recordings of one speaker have 0.69 to 0.99, and half of the
# pairs of two speakers less than 0.
SAME_SPEAKER = 0.5
# The lowest cosine of two windows of a recording: 0.80 to 1.00 for one speaker, mostly below 0.3 for two.
WINDOW_S, ONE_SPEAKER = 3.0, 0.4
NOTHING = -100  # the target of positions that predict nothing: ``ignore_index`` of torch's cross entropy


@dataclass(frozen=True, eq=False)
class Pair:
    """A recording, mono float32 ``[T]`` at the codec's rate, and its text."""

    name: str
    waveform: np.ndarray
    text: str


@dataclass
class Selection:
    """Usable recordings with their texts, and the reasons for leaving out others, by name."""

    pairs: list[Pair] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def keep(self, wanted: Sequence[bool], reason: Callable[[int], str]) -> None:
        """Leave out the pairs that are not wanted; ``reason`` gets the index of each."""
        self.refused |= {
            one.name: reason(index)
            for index, (one, keep) in enumerate(zip(self.pairs, wanted, strict=True))
            if not keep
        }
        self.pairs = [one for one, keep in zip(self.pairs, wanted, strict=True) if keep]


def read_folder(folder: Path) -> tuple[list[Recording], dict[str, str]]:
    """Return a folder's recordings, each with the text of its NAME.txt, if any, and reasons for unusable files.

    Raises ValueError if it is no folder, or has no recordings.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: give one with NAME.wav and NAME.txt")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    if not files:
        raise ValueError(f"{folder} has no recordings: put NAME.wav and NAME.txt into it")
    count = Counter(path.stem for path in files)
    recordings, refused = [], dict[str, str]()
    for path in sorted(folder.glob("*.txt")):
        if path.stem not in count:
            refused[path.name] = "it has no recording beside it: add it as wav, or remove the text"
    for path in files:
        try:
            if count[path.stem] > 1:
                raise ValueError("it is one of two recordings for one text: keep one of them")
            recordings.append(read_recording(path))
        except ValueError as error:
            refused[path.name] = str(error).removeprefix(f"{path.name} ")
    return recordings, refused


def check_recordings(
    recordings: Sequence[Recording], rate: int, language: str, by: Whisper | None, say: Callable[[str], object]
) -> Selection:
    """Return the recordings whose sound, text and language can be used.

    Args:
        recordings: of one speaker.
        rate: of the codec, in Hz.
        language: that is spoken; "auto": most of the recordings'.
        by: transcribes those without a text, and detects mismatched texts; None: those without a text are left out.
        say: gets a few words before each recording; if it raises, the check ends.
    """
    found, languages = Selection(), list[str]()
    for number, one in enumerate(recordings, start=1):
        say(f"checking recording {number} of {len(recordings)}")
        try:
            pair = Pair(one.name, check_sound(one, rate), one.transcript or "")
            text, spoken = _check_text(pair, rate, language, by)
        except ValueError as error:
            found.refused[one.name] = str(error)
            continue
        found.pairs.append(replace(pair, text=text))
        languages.append(spoken)
    [(most, _)] = Counter(languages).most_common(1) or [("", 0)]
    found.keep(
        [one == most for one in languages],
        lambda index: f"it is in {languages[index]} and most others are in {most}: train one language",
    )
    return found


def _check_text(pair: Pair, rate: int, language: str, by: Whisper | None) -> tuple[str, str]:
    """Return the text and language of a pair; ValueError if it has none, or another recording's."""
    text = pair.text
    if by is None:
        if not text:
            raise ValueError(f"it has no words: write what it says into {pair.name}.txt, or choose a recogniser")
        pace = text_frames(text) / (len(pair.waveform) / rate * FRAME_RATE)
        if not LEAST_PACE <= pace <= MOST_PACE:
            raise ValueError(f"its text is too {'long' if pace > 1 else 'short'} for it: correct {pair.name}.txt")
        return text, language
    found = by.transcribe_words(pair.waveform, rate, language)
    heard = found.text.strip()
    if not any(map(str.isalnum, heard)):
        raise ValueError("no words are recognised in it: leave it out, or record it again")
    if text:
        errors, words = count_errors(text, heard, found.language)
        if errors > MOST_ERRORS * words:
            raise ValueError(f"it says {heard[:60]!r}, and its text is {text[:60]!r}: correct the text")
    return text or heard, found.language


def check_sound(one: Recording, rate: int) -> np.ndarray:
    """Return a recording as mono float32 ``[T]`` at ``rate``; ValueError if it would spoil a voice."""
    seconds = one.waveform.shape[-1] / one.sample_rate
    if seconds > LONGEST_S:
        raise ValueError(f"it is longer than {LONGEST_S:.0f} s: cut it, and its text, at the end of a sentence")
    prepared = prepare_reference(one.waveform, one.sample_rate, rate)
    faults = measure(one.waveform, one.sample_rate).faults
    for name in SPOILING:
        if name in faults:
            raise ValueError(faults[name])
    return prepared.waveform


def check_speaker(model: Model, found: Selection) -> None:
    """Leave out recordings of two speakers, or of another than most; none if the checkpoint has no speaker encoder."""
    encoder = model.network.speaker_encoder
    if encoder is None:
        return

    def compare(waveforms: Sequence[np.ndarray]) -> np.ndarray:
        vectors = np.stack([encoder.embed(one).float().cpu().numpy().ravel() for one in waveforms])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines: np.ndarray = vectors @ vectors.T
        return cosines

    with model.exclusive(), limit_threads(model):
        alone = [compare(cut_windows(one.waveform, model.sample_rate)).min() >= ONE_SPEAKER for one in found.pairs]
        found.keep(alone, lambda _: "it sounds like two speakers: cut it, and its text, to what one of them says")
        if not found.pairs:
            return
        near = compare([one.waveform for one in found.pairs]) >= SAME_SPEAKER
    own = near[near.sum(axis=1).argmax()]  # of the recording that most others are like
    found.keep([*map(bool, own)], lambda _: "it sounds like another speaker than most: train one speaker")


def cut_windows(waveform: np.ndarray, rate: int) -> list[np.ndarray]:
    """Cut a recording's speech, without pauses, into windows of WINDOW_S that overlap by half."""
    spoken = [waveform[round(start * rate) : round(end * rate)] for start, end in measure(waveform, rate).speech]
    speech, size = np.concatenate(spoken or [waveform]), round(WINDOW_S * rate)
    last = max(0, len(speech) - size)
    starts = np.linspace(0, last, 1 + math.ceil(2 * last / size)).astype(int)
    return [speech[start : start + size] for start in starts]


@dataclass(frozen=True, eq=False)
class Example:
    """One line, on the CPU.

    Args:
        inputs: of the talker, ``[T + F, H]``: a prompt of T positions, then F frames with the text that trails.
        codes: int64 ``[F, 16]``. Position T - 1 + i predicts frame i, and the last one the end.
    """

    inputs: torch.Tensor
    codes: torch.Tensor

    @property
    def start(self) -> int:
        """The position that predicts the first frame, T - 1; the speaker of an x-vector clone is two before it."""
        return len(self.inputs) - len(self.codes) - 1


def make_examples(model: Model, pairs: Sequence[Pair], voice: Voice, language: str) -> list[Example]:
    """Return the lines of a voice; ValueError, with the pair's name, as ``PromptBuilder.build``."""
    builder, normalizer = PromptBuilder(model), normalizer_of(model, GenerateOptions())
    examples = []
    for pair in pairs:
        codes = encode_waveform(model, pair.waveform).to(model.device)
        try:
            prompt = builder.build(normalizer.write_out(pair.text, language).text, voice, language)
        except ValueError as error:
            raise ValueError(f"{pair.name}: {error}") from error
        examples.append(Example(_inputs(model, prompt, codes).cpu().clone(), codes.cpu().clone()))
    return examples


@torch.inference_mode()
def _inputs(model: Model, prompt: Prompt, codes: torch.Tensor) -> torch.Tensor:
    """Return a prompt, then each frame with its trailing text token or padding."""
    rest = max(0, len(codes) - len(prompt.text_rows))
    text = torch.cat((prompt.text_rows, prompt.pad.expand(rest, -1)))[: len(codes)]
    return torch.cat((prompt.embeds, embed_frames(model, codes, model.code_tables()) + text))


@dataclass(frozen=True, eq=False)
class ExampleBatch:
    """Lines together on one device.

    Args:
        inputs: ``[B, N, H]``, padded on the right: attention is causal.
        targets: of group 0 and the end, int64 ``[B, N]``, NOTHING elsewhere.
        codes: of the frames that the code predictor learns, int64 ``[K, 16]``.
        places: flat positions in ``[B * N]`` that predict these frames, ``[K]``.
        speakers: positions of the speaker in ``[N]``, if the lines are x-vector clones, ``[B]``.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    codes: torch.Tensor
    places: torch.Tensor
    speakers: torch.Tensor

    def shift_speakers(self, shift: torch.Tensor) -> torch.Tensor:
        """Return the inputs with ``shift`` ``[H]`` added to the lines' speaker."""
        inputs, rows = self.inputs.clone(), torch.arange(len(self.inputs), device=self.inputs.device)
        inputs[rows, self.speakers] += shift.to(inputs.dtype)
        return inputs


def stack(examples: Sequence[Example], end: int, device: torch.device) -> ExampleBatch:
    """Return lines as a batch; ``end``: the id in group 0 that ends a line."""
    inputs = torch.nn.utils.rnn.pad_sequence([one.inputs for one in examples], batch_first=True)
    targets = torch.full(inputs.shape[:2], NOTHING)
    places = []
    for row, one in enumerate(examples):
        after = one.start + len(one.codes)
        targets[row, one.start : after] = one.codes[:, 0]
        targets[row, after] = end
        places.append(row * targets.shape[1] + torch.arange(one.start, after))
    codes = torch.cat([one.codes for one in examples])
    speakers = torch.tensor([one.start - 2 for one in examples])
    return ExampleBatch(*(part.to(device) for part in (inputs, targets, codes, torch.cat(places), speakers)))
