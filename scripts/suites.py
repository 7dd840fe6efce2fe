"""The figures of a suite: a file of JSON lines, one a case and device."""
import json
import pathlib


def case_and_device(line):
    return line["case"], line["device"]


def replace(path, lines, key=case_and_device):
    """Replaces the cases of `lines` in a suite's file, which need not be there, and keeps all others."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = {key(line) for line in lines}
    kept = [line for line in map(json.loads, path.read_text().splitlines()) if key(line) not in measured] if path.exists() else []
    path.write_text("".join(json.dumps(line) + "\n" for line in kept + lines))


def append(path, line):
    """Adds a case to a suite's file."""
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")
