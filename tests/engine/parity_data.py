"""The data of parity.py: what `troupe data make --uneven` makes, without the longest samples; subsets of one kind; a set
in which some files are damaged."""

import json
import pathlib
import subprocess

# A sample's llm rows, about: characters, and 12.5 rows for each tone. Attention is quadratic in them, and the reference takes
# samples one by one: a dozen giants would take half of the time and show nothing that the rest of this size does not.
ROWS_PER_TONE = 12.5
ROWS_MAX = 700
TONES = ("low", "middle", "high")
TONES_OF_A_WINDOW = 120  # 30 s: a clip of more is cut in two.


def rows_and_tones(sample):
    turns = [turn["value"] for turn in sample["conversations"]]
    tones = sum(turn.split().count(tone) for turn in (turn.replace(";", " ").replace(".", " ") for turn in turns[1::2])
                for tone in TONES)
    return sum(map(len, turns)) + ROWS_PER_TONE * tones, tones


class UnevenData:
    """A data set below `folder`, made once."""

    def __init__(self, binary, folder):
        self.folder = pathlib.Path(folder)
        subprocess.run([str(binary), "data", "make", str(self.folder), "--uneven"], check=True, capture_output=True,
                       timeout=120)
        samples = json.loads((self.folder / "samples.json").read_text(encoding="utf-8"))
        two_windows = next(sample for sample in samples if rows_and_tones(sample)[1] > TONES_OF_A_WINDOW)
        self.samples = [sample for sample in samples
                        if rows_and_tones(sample)[0] <= ROWS_MAX or sample is two_windows]
        self.whole = self.write("uneven", self.samples)

    def write(self, name, samples):
        """Writes samples to a file of their own; returns the override that names it."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(samples), encoding="utf-8")
        return f'data.sources=[{{format="llava",json="{path}"}}]'

    def subset(self, kind, count):
        """At least `count` samples that have only text, or only audio: all but the longest quarter, again and again."""
        wanted = {"text": lambda s: "image" not in s and "audio" not in s,
                  "audio": lambda s: "audio" in s and "image" not in s}[kind]
        chosen = sorted(filter(wanted, self.samples), key=rows_and_tones)
        chosen = chosen[:3 * len(chosen) // 4]
        copies = -(-count // len(chosen))
        return self.write(kind, [dict(sample, id=f"{sample['id']}-{copy}") for copy in range(copies) for sample in chosen])

    def damaged(self):
        """The whole set with every fifth picture and clip damaged: some are missing, the others end in the middle, so that
        a header still tells their size. Returns the override, and which samples have one."""
        bad = set()
        samples = []
        for number, sample in enumerate(self.samples):
            sample = dict(sample)
            kind = "image" if "image" in sample else "audio"
            if kind in sample and number % 5 == 0:
                files = [sample[kind]] if isinstance(sample[kind], str) else list(sample[kind])
                files[-1] = self.spoil(files[-1], number % 10 == 0)
                sample[kind] = files[0] if isinstance(sample[kind], str) else files
                bad.add(sample["id"])
            samples.append(sample)
        return self.write("damaged", samples), bad

    def spoil(self, name, missing):
        """The name of a file that is not there, or of a copy without its second half."""
        path = pathlib.Path(name)
        other = path.with_name(("missing-" if missing else "half-") + path.name)
        if not missing:
            content = (self.folder / path).read_bytes()
            (self.folder / other).write_bytes(content[:len(content) // 2])
        return str(other)
