#!/usr/bin/env python3
"""Runs compute-sanitizer over the table of operations, in the folder of tensor.test on a GPU host.

    sanitize.py [TOOL...] [--ops PATTERN] [--every] [--jobs N] [--limit SECONDS]

The tools are memcheck, racecheck, initcheck and synccheck, all of them if none is named. Without a tool every case runs first, and
VIBRANT_TRACE=kernels names the kernel of each call. Of the cases those run under the tools that launch a kernel with types of
operands that no smaller case has; --every takes all. The exit status is 1 where a tool finds something, or a case fails or did not end
within the limit.
"""
import argparse, collections, concurrent.futures, os, re, subprocess, sys, time

TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("tools", nargs="*", metavar="TOOL", help=", ".join(TOOLS))
parser.add_argument("--ops", default=".", metavar="PATTERN", help="operations whose name has a match")
parser.add_argument("--every", action="store_true", help="every case of the table (racecheck takes hours)")
parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
parser.add_argument("--limit", type=float, default=3600, help="seconds in all")
args = parser.parse_args()
for tool in args.tools:
    if tool not in TOOLS:
        parser.error(f"{tool} is none of {', '.join(TOOLS)}")
start = time.monotonic()


def left():
    return max(1, args.limit - (time.monotonic() - start))


def run(command, **environment):
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              errors="replace", timeout=left())
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        return 124, ""


def test(pattern):
    return ["./tensor.test", "-test.v", "-test.timeout=0", f"-test.run=TestOps$/^cuda$/{pattern}"]


def kernels(op):
    """The cases of an operation, each with "function types: kernel" of its calls."""
    status, said = run(test(f"^{op}$"), VIBRANT_TRACE="kernels")
    cases, case = collections.defaultdict(set), None
    for line in said.splitlines():
        if match := re.match(r"=== RUN +TestOps/cuda/([^/]+/.+)$", line):
            case = match[1]
        elif line.startswith("vibrant: ") and case:
            cases[case].add(re.sub(r" \w+=[^ :]*", "", line[9:]))
    if status or not cases:
        sys.exit(f"sanitize: {op} without a tool: exit status {status}\n{said[-2000:]}")
    return cases


def size(case):
    """The product of a case's dimensions."""
    n = 1
    for part in re.split("[/_]", case):
        if re.fullmatch(r"\d+(x\d+)*", part):
            for dimension in part.split("x"):
                n *= max(1, int(dimension))
    return n


def sanitize(tool, op, cases):
    names = "|".join(re.sub(r"\W", ".", case.split("/", 1)[1]) for case in cases)
    status, said = run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *test(f"^{op}$/^({names})$")])
    passed = len(re.findall(r"--- PASS: TestOps/cuda/[^/]+/", said))
    if status == 0 and passed == len(cases):
        return True
    summary = " ".join(re.findall(r"SUMMARY: .*", said)) or said[-2000:]
    places = dict.fromkeys(line.lstrip("= ") for line in re.findall(r"^=========.* at (?:0x|\w).*", said, re.M))  # with their kernels
    print(f"FAILED {tool} {op}: exit status {status}, {passed} of {len(cases)} cases passed, {summary}: {names}", *list(places)[:8],
          sep="\n    ", flush=True)
    return False


with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    _, listed = run(test("./^none$"))
    cases = {}
    ops = [op for op in re.findall(r"^=== RUN +TestOps/cuda/([^/\n]+)$", listed, re.M) if re.search(args.ops, op)]
    for found in pool.map(kernels, ops):
        cases.update(found)
    seen, taken = set(), collections.defaultdict(list)
    for case in sorted(cases, key=lambda case: (size(case), case)):
        op = case.split("/")[0]
        if args.every or cases[case] - seen or op not in taken:
            seen |= cases[case]
            taken[op].append(case)
    names = {kernel.split(": ")[1] for kernel in seen}
    print(f"{sum(map(len, taken.values()))} of {len(cases)} cases of {len(taken)} operations launch {len(names)} kernels, "
          f"{len(seen)} with their types: {time.monotonic() - start:.0f} s", flush=True)
    failed = 0
    for tool in args.tools or TOOLS:
        begun = time.monotonic()
        most = 5 if tool == "racecheck" else 30  # cases of a process, which takes seconds to start
        parts = []
        for op, all in taken.items():
            pieces = -(-len(all) // most)
            parts += [(op, all[i::pieces]) for i in range(pieces)]
        parts.sort(key=lambda part: -sum(map(size, part[1])))
        clean = sum(pool.map(lambda part: sanitize(tool, *part), parts))
        failed += len(parts) - clean
        print(f"{tool}: {clean} of {len(parts)} processes without errors, {time.monotonic() - begun:.0f} s", flush=True)
sys.exit(1 if failed else 0)
