#!/usr/bin/env python3
"""Measure ternary products on the CPU beside ik_llama.cpp's: ours, IQ2_BN and IQ2_BN_R4 in turn, in one process.

    bench_ternary.py --peer FOLDER [--threads 1] [--rounds 30] [--random 4] [--columns 1 4 16] [--work DIR] [--out docs/benchmarks]

FOLDER is a checkout of ik_llama.cpp, of which two files are compiled here. Suite tmac: float activations and results, table
look-up beside the better one of theirs, and beside our product with F16 weights, which are widened. Suite ternary: rounding to
int8 and W2A8. Weights lie in 48 MB, so that they come from behind the second cache; figures are the least of the rounds, by
the thread's own clock where there is one thread. Needs make lib, g++ and Python; with VIBRANT_SIMD=avx2 both sides have AVX2
and no more.
"""
import argparse, json, os, random, subprocess, sys

from suites import replace

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("--peer", required=True, help="checkout of ik_llama.cpp")
ap.add_argument("--threads", type=int, default=1)
ap.add_argument("--rounds", type=int, default=30)
ap.add_argument("--random", type=int, default=4, help="shapes drawn at random, too")
ap.add_argument("--columns", type=int, nargs="+", default=[1, 4, 16])
ap.add_argument("--seed", type=int, default=1)
ap.add_argument("--lib", default="build/lib/libvibrant.a")
ap.add_argument("--work", default="build/bench_ternary", help="where the program is built")
ap.add_argument("--out", default="docs/benchmarks")
A = ap.parse_args()
SIMD = os.environ.get("VIBRANT_SIMD", "native")
MARCH = {"native": "native", "avx512": "native", "avx2": "x86-64-v3"}[SIMD]

# the shapes that Microsoft published
SHAPES = [(2560, 2560), (3840, 2560), (13824, 2560), (2560, 6912), (3200, 3200), (4800, 3200), (3200, 10240), (20480, 3200)]

PEER = r"""
#include "iqk/iqk_config.h"
#include "iqk/iqk_gemm_1bit.h"
#include "iqk/iqk_quantize.h"
#include "ggml.h"
#include <algorithm>
#include <omp.h>
extern "C" void peer(int r4, float *out, const char *w, const float *x, long m, long n, long k, int threads, char *scratch) {
    std::array<mul_mat_t, IQK_MAX_NY> f{};
    mul_mat_t f16 = nullptr;
    if (!iqk_set_kernels_1bit(k, r4 ? GGML_TYPE_IQ2_BN_R4 : GGML_TYPE_IQ2_BN, r4 ? GGML_TYPE_Q8_K16 : GGML_TYPE_Q8_K64, f, f16)) abort();
    const size_t by = (k + 95) / 64 * 64, bx = 4 + k / 4;
    int most = 0;
    while (most < IQK_MAX_NY && f[most]) most++;
    auto work = [&](int t) {
        for (long i = t; i < n; i += threads) r4 ? quantize_row_q8_K16(x + i * k, scratch + i * by, k) : quantize_row_q8_K64(x + i * k, scratch + i * by, k);
        if (threads > 1) {
#pragma omp barrier
        }
        const long share = (m / threads + 7) / 8 * 8, end = std::min(m, (t + 1) * share);
        for (long r = t * share; r < end; r += 64) {
            DataInfo info{out + r, scratch, (size_t)m, by, 0, 1, nullptr, 0};
            const long steps = (n + most - 1) / most, rows = std::min(64l, end - r);
            for (long s = 0, done = 0; s < steps; s++) {
                const long columns = (n - done) / (steps - s);
                f[columns - 1](k, w + r * bx, bx, info, rows);
                info.cur_y += columns, done += columns;
            }
        }
    };
    if (threads == 1) return work(0);
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num());
}
"""

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "vibrant.h"
#define OK(e) do { vb_status s_ = (e); if (s_) { fprintf(stderr, "%s: %s\n", #e, vb_status_string(s_)); exit(1); } } while (0)
void peer(int r4, float *out, const char *w, const float *x, long m, long n, long k, int threads, char *scratch);
static unsigned long state = 88172645463325252ul;
static unsigned long next(void) { state ^= state << 13; state ^= state >> 7; return state ^= state << 17; }
int main(int argc, char **argv) {
    const int threads = atoi(argv[1]), rounds = atoi(argv[2]);
    vb_device *d;
    vb_stream *st;
    OK(vb_device_open(&d, VB_CPU, 0, &VB_ARGS(vb_device_options, .threads = threads)));
    OK(vb_stream_create(&st, d));
    vb_device_info info;
    OK(vb_device_get_info(&info, d));
    printf("{\"name\": \"%s\", \"features\": \"%s\"}\n", info.name, info.features);
    for (int i = 3; i + 2 < argc; i += 3) {
        const long m = atol(argv[i]), k = atol(argv[i + 1]), n = atol(argv[i + 2]);
        const size_t size = m * (k / 4 + 64), copies = 48000000 / size + 1, wide = 2 * m * k;
        unsigned char *w = aligned_alloc(64, (copies * size + 63) / 64 * 64), *half = n <= 16 ? malloc(wide) : NULL;
        for (size_t b = 0; b + 8 <= copies * size; b += 8) {
            const unsigned long v = next(), code = v & ~(v >> 1 & v & 0x5555555555555555ul); /* no code 3 */
            memcpy(w + b, &code, 8);
        }
        float *x = malloc(4 * k * n), *out = malloc(4 * m * n), *scales = malloc(4 * m), *row_scales = malloc(4 * n);
        char *codes = malloc(k * n), *scratch = aligned_alloc(64, n * ((k + 95) / 64 * 64));
        for (long e = 0; e < k * n; e++) x[e] = (float)(next() >> 40) * 0x1p-23f - 1;
        for (long e = 0; e < m; e++) scales[e] = 1;
        if (half) memset(half, 0x2c, wide);
        double best[5] = {1e30, 1e30, 1e30, 1e30, 1e30};
        size_t at = 0;
        for (int round = 0; round < rounds; round++)
            for (int op = 0; op < 5; op++) {
                if (op == 4 && (!half || round > 2)) continue;
                const unsigned char *ww = w + at * size;
                struct timespec t0, t1;
                clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t0);
                if (op == 0) OK(vb_tmac_matmul(&(vb_tmac_matmul_args){.size = sizeof(vb_tmac_matmul_args), .out = out, .weights = ww,
                    .activations = x, .scales = scales, .m = m, .n = n, .k = k, .groups = 1}, st));
                if (op == 1) {
                    OK(vb_norm_quantize(&(vb_norm_quantize_args){.size = sizeof(vb_norm_quantize_args), .codes = codes, .scales = row_scales,
                        .in = x, .rows = n, .cols = k}, st));
                    OK(vb_w2a8_gemv(&(vb_w2a8_gemv_args){.size = sizeof(vb_w2a8_gemv_args), .out = out, .weights = ww, .activations = codes,
                        .activation_scales = row_scales, .weight_scales = scales, .segments = 1, .m = n, .n = m, .k = k,
                        .row_bytes = vb_int2_row_bytes(VB_INT2_INTERLEAVED, k), .layout = VB_INT2_INTERLEAVED, .out_type = VB_F32}, st));
                }
                if (op == 2 || op == 3) peer(op == 3, out, (const char *)ww, x, m, n, k, threads, scratch);
                if (op == 4) OK(vb_linear(out, x, &(vb_weight){.data = half, .type = VB_F16, .rows = m, .cols = k}, NULL, n, st));
                OK(vb_stream_synchronize(st));
                clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t1);
                const double us = (t1.tv_sec - t0.tv_sec) * 1e6 + (t1.tv_nsec - t0.tv_nsec) * 1e-3;
                if (us < best[op]) best[op] = us;
                at = (at + 1) % copies;
            }
        printf("[%ld, %ld, %ld, %g, %g, %g, %g, %g]\n", m, k, n, best[0], best[1], best[2], best[3], half ? best[4] : 0);
        fflush(stdout);
        free(w); free(half); free(x); free(out); free(scales); free(row_scales); free(codes); free(scratch);
    }
    return 0;
}
"""


def run(*command, **options):
    p = subprocess.run(command, text=True, capture_output=True, **options)
    if p.returncode:
        sys.exit(f"bench_ternary: {' '.join(command)[:200]}: exit status {p.returncode}: {p.stderr[-800:]}")
    return p.stdout


def build():
    """the program, linked with two of the peer's files, and functions that abort for what these call of the others"""
    work = os.path.join(A.work, MARCH)
    os.makedirs(work, exist_ok=True)
    path = lambda name: os.path.join(work, name)
    flags = ["-O3", "-DNDEBUG", "-D_GNU_SOURCE", f"-march={MARCH}", "-fopenmp", "-std=gnu++20", "-w", f"-I{A.peer}/ggml/include", f"-I{A.peer}/ggml/src"]
    objects = []
    for name in "iqk_gemm_1bit", "iqk_quantize":
        objects.append(path(name + ".o"))
        if not os.path.exists(objects[-1]):
            run("g++", *flags, "-c", f"{A.peer}/ggml/src/iqk/{name}.cpp", "-o", objects[-1])
    open(path("peer.cpp"), "w").write(PEER)
    open(path("program.c"), "w").write(PROGRAM)
    run("g++", *flags, "-c", path("peer.cpp"), "-o", path("peer.o"))
    run("gcc", "-O2", "-std=gnu11", "-Icsrc", "-c", path("program.c"), "-o", path("program.o"))
    objects += [path("peer.o"), path("program.o")]
    table = run("nm", *objects)
    defined = {l.split()[2] for l in table.splitlines() if len(l.split()) == 3}
    missing = {l.split()[1] for l in table.splitlines() if l.split()[:1] == ["U"]} - defined
    missing = {s for s in missing if s.startswith(("ggml_", "iqk_", "quantize_", "iq1", "dequantize_", "_Z")) and "St" not in s and s[:4] not in ("_Znw", "_Zna", "_Zdl", "_Zda")}
    open(path("missing.c"), "w").write("void abort(void);\n" + "".join(
        f"float {s}[65536];\n" if "_table_" in s else f"void {s}(void) {{ abort(); }}\n" for s in sorted(missing)))
    run("gcc", "-w", "-c", path("missing.c"), "-o", path("missing.o"))
    run("g++", *objects, path("missing.o"), A.lib, "-fopenmp", "-lm", "-o", path("program"))
    return path("program")


draw = random.Random(A.seed)
shapes = SHAPES + [(8 * draw.randrange(32, 1500), 256 * draw.randrange(2, 40)) for _ in range(A.random)]
cases = [(m, k, n) for m, k in shapes for n in A.columns] + [(2560, 2560, 128)] * (A.columns == [1, 4, 16])
lines = run(build(), str(A.threads), str(A.rounds), *[str(v) for c in cases for v in c]).splitlines()
device = json.loads(lines[0])
simd = "" if SIMD == "native" else f"VIBRANT_SIMD={SIMD} "
command = f"{simd}python3 scripts/bench_ternary.py --peer FOLDER --threads {A.threads} --rounds {A.rounds} --random {A.random}"
command += "" if A.columns == [1, 4, 16] else " --columns " + " ".join(map(str, A.columns))
level = "amx" if "amx" in device["features"].split() else device["features"].split()[0]  # the best that is used
suites = {"tmac": [], "ternary": []}
print(f"{device['name']}, {device['features']}, {A.threads} threads\n{'rows x columns, n':24} {'look-up':>9} {'W2A8':>9} {'IQ2_BN':>9} {'_R4':>9} {'F16':>9} us; ratios to the peer's better and to F16")
for m, k, n, lookup, w2a8, plain, r4, half in map(json.loads, lines[1:]):
    best = min(plain, r4)
    case = f"{m}x{k} n={n} {level} t={A.threads}"
    print(f"{f'{m}x{k}, {n}':24} {lookup:9.0f} {w2a8:9.0f} {plain:9.0f} {r4:9.0f} {half:9.0f}   {best / lookup:.2f} {best / w2a8:.2f} {half / lookup:.2f}")
    figure = lambda suite, what, ours, peer: suites[suite].append({"suite": suite, "case": f"{case} beside {what}", "ours": round(ours, 1),
        "peer": round(peer, 1), "unit": "us", "ratio": round(peer / ours, 3), "roofline": None, "error": None, "device": device["name"], "command": command})
    figure("tmac", "IQ2_BN", lookup, best)
    figure("ternary", "IQ2_BN", w2a8, best)
    if half:
        figure("tmac", "F16 weights widened to floats", lookup, half)
for suite, figures in suites.items():
    replace(os.path.join(A.out, suite + ".jsonl"), figures)
