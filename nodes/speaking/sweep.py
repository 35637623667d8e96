"""The Speed/Quality Sweep node."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ...morph.options import GenerateOptions, Sampling, parse_groups
from .. import inputs
from ..models.memory import ManagedModel, check_model, check_voice
from ..page.clips import show, to_clip
from ..page.live import announce
from ..page.progress import show_progress
from ..schema import ModelSocket, SamplingSocket, VoiceSocket, schema
from ..sound.values import facts_of_line
from .common import to_audios

if TYPE_CHECKING:
    from ...morph.speech.lines import Spoken


class SweepNode(io.ComfyNode):
    define_schema = schema(
        "MorphTTSSweep",
        inputs=lambda: [
            ModelSocket.Input("model"),
            VoiceSocket.Input("voice"),
            inputs.text_box("text", "The same sentence, spoken faster and faster: can you hear the difference?"),
            inputs.language(),
            io.String.Input("seq_groups", default="1, 3, 5, 7, 15"),
            inputs.seed(),
            SamplingSocket.Input("sampling", optional=True),
        ],
        outputs=[
            io.Image.Output("plot"),
            io.Audio.Output("lines", is_output_list=True),
            io.String.Output("table"),
        ],
        hidden=[io.Hidden.unique_id],
        is_output_node=True,
    )

    validate_inputs = inputs.judged(text=inputs.check_text)

    @classmethod
    def execute(
        cls, model: ManagedModel, seq_groups: str, sampling: Sampling | None = None, **given: Any
    ) -> io.NodeOutput:
        import torch

        from ...morph.speech.lines import Line
        from ...morph.study.plot import plot_sweep
        from ...morph.study.sweep import sweep, table

        check_model(model)
        check_voice(given["voice"])
        inputs.check_word("language", given["language"])
        line = Line(**given)
        groups = parse_groups(seq_groups)
        node, options = cls.hidden.unique_id, GenerateOptions(sampling=sampling)
        with model.use() as ready, show_progress(node) as progress, announce(node, ready.model.sample_rate) as page:

            def play(seq_groups: int, spoken: Spoken) -> None:
                page.begin(f"SEQ_GROUPS {seq_groups}", given["text"])
                page.play(spoken.waveform)

            result = sweep(ready, line, groups, options, progress, play)
            pairs = list(zip(result.spoken, result.rows, strict=True))
            facts = [
                facts_of_line(line, one, replace(options, seq_groups=row.seq_groups), ready.model.name)
                for one, row in pairs
            ]
        image = torch.from_numpy(plot_sweep(result)).float()[None] / 255
        clips = [to_clip(one, f"SEQ_GROUPS {row.seq_groups}") for one, row in pairs]
        # The node shows no table.
        shown = "\n".join(
            f"SEQ_GROUPS {row.seq_groups}: {row.ms_per_frame:.1f} ms per frame, RTF {row.rtf:.3f}, "
            f"distance {row.distance:.3f}"
            for row in result.rows
        )
        return io.NodeOutput(image, to_audios(result.spoken, facts), table(result), ui=show(shown, clips, compare=True))
