"""What a job says to train on a kind of device."""

import pathlib


def device_words(binary, device):
    """`apart`: the device of tests/accelerator, which stands in for a GPU; else what `cluster.device` says."""
    if device != "apart":
        return [] if device == "cpu" else [f"cluster.device={device}"]
    library = pathlib.Path(binary).resolve().parent / "tests" / "apart.so"
    if not library.is_file():
        raise FileNotFoundError(f"{library} is not there: `cmake --build build/release --target apart` makes it")
    return [f'plugins.libraries=["{library}"]', "cluster.device=apart"]
