#!/usr/bin/env python3
"""Bring docs/benchmarks.md up to date with the saved figures: its tables and its plots.

    report_benchmarks.py [--docs docs] [--no-plots]

A table stands between `<!-- table: SUITE -->` and `<!-- end -->` and is written anew from docs/benchmarks/SUITE.jsonl;
`<!-- table: SUITE DEVICE -->` takes the lines whose device begins with DEVICE. The plots are docs/benchmarks/*.svg and need
matplotlib (pip install matplotlib); the tables need Python alone.
"""
import argparse, json, os, re, sys

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--docs", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs"))
ap.add_argument("--no-plots", action="store_true")
A = ap.parse_args()

OURS, PEER = "#1f77b4", "#b0b0b0"


def lines(suite, device=""):
    path = os.path.join(A.docs, "benchmarks", suite + ".jsonl")
    if not os.path.exists(path):
        sys.exit(f"report_benchmarks: there is no {path}")
    return [l for l in map(json.loads, open(path)) if l["device"].startswith(device)]


# ---- tables -------------------------------------------------------------------------------------------------------------

def number(x):
    return "" if x is None else f"{x:,.0f}" if x >= 1000 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def table(suite, device=""):
    found = lines(suite, device)
    columns = {"case": lambda l: l["case"], "ours": lambda l: number(l["ours"]), "peer": lambda l: number(l["peer"]),
               "unit": lambda l: l["unit"], "ratio": lambda l: "" if l["ratio"] is None else f"{l['ratio']:.2f}",
               "of the roofline": lambda l: "" if l["roofline"] is None else f"{l['roofline']:.0f} %",
               "error": lambda l: "" if l["error"] is None else f"{l['error']:.1e}",
               "peer is": lambda l: l.get("peer_name") or ""}
    rows = [[cell(l) for cell in columns.values()] for l in found]
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    pick = lambda row: "| " + " | ".join(row[i] for i in used) + " |"
    return "\n".join([pick(list(columns)), "|" + "---|" * len(used)] + [pick(row) for row in rows])


def write_tables():
    path = os.path.join(A.docs, "benchmarks.md")
    text = open(path).read()
    block = re.compile(r"(<!-- table: (\S+)(?: ([^>]*?))? -->\n).*?(<!-- end -->)", re.S)
    with open(path, "w") as f:
        f.write(block.sub(lambda m: m[1] + table(m[2], m[3] or "") + "\n" + m[4], text))


# ---- plots --------------------------------------------------------------------------------------------------------------

def save(figure, name):
    figure.tight_layout()
    figure.savefig(os.path.join(A.docs, "benchmarks", name + ".svg"), metadata={"Date": None})


def pairs(axes, labels, found, title):
    """bars of ours and, where it was measured, the peer"""
    at = range(len(found))
    axes.bar([x - 0.2 for x in at], [l["ours"] for l in found], 0.4, color=OURS, label="Vibrant")
    axes.bar([x + 0.2 for x in at], [l["peer"] or 0 for l in found], 0.4, color=PEER, label="ik_llama.cpp")
    axes.set_xticks(list(at), labels)
    axes.set_title(title)
    axes.set_ylabel("tok/s")
    axes.legend()


def plot_models(plt):
    """tok/s over the size of the model, and over the depth of the context (cases "NAME dTOKENS")"""
    gpu = {suite: lines(suite, "NVIDIA") for suite in ("prefill", "decode")}
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6))
    size = lambda l: re.match(r"qwen2\.5-([\d.]+)b q4_k_m$", l["case"])
    for ax, (suite, title) in zip(axes, (("prefill", "Prefill, 512 tokens"), ("decode", "Decode, batch 1"))):
        found = sorted((l for l in gpu[suite] if size(l)), key=lambda l: float(size(l)[1]))
        pairs(ax, [size(l)[1] + "B" for l in found], found, title)
    depth = lambda l: re.match(r"qwen2\.5-3b q4_k_m(?: d(\d+))?$", l["case"])
    found = sorted((l for l in gpu["decode"] if depth(l)), key=lambda l: int(depth(l)[1] or 0))
    pairs(axes[2], [depth(l)[1] or "0" for l in found], found, "Decode of the 3B after so many tokens")
    save(figure, "models")


def plot_ratios(plt):
    """how many times faster than the peer each dense kernel is"""
    found = [l for l in lines("dense") if l["ratio"]]
    figure, ax = plt.subplots(figsize=(8, 0.19 * len(found) + 1))
    at = range(len(found), 0, -1)
    ax.barh(list(at), [l["ratio"] for l in found], color=[OURS if l["ratio"] >= 1 else "#d62728" for l in found])
    ax.set_yticks(list(at), [l["case"] for l in found], fontsize=7)
    ax.set_ylim(0.4, len(found) + 0.6)
    ax.axvline(1, color="black", linewidth=1)
    ax.set_xlabel("times faster than the peer (cuBLAS, PyTorch eager or compiled, SDPA: the better)")
    save(figure, "dense")


write_tables()
if not A.no_plots:
    try:
        import matplotlib
    except ImportError:
        sys.exit("report_benchmarks: the tables are written; the plots need matplotlib (pip install matplotlib), or say --no-plots")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "vibrant", "svg.fonttype": "none"})  # the same figures give the same file
    from matplotlib import pyplot
    plot_models(pyplot)
    plot_ratios(pyplot)
