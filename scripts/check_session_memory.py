#!/usr/bin/env python3
"""Hold a long chat on a GPU and check that it takes no more memory as it goes on.

    check_session_memory.py MODEL.gguf [--turns 50] [-n 64] [-c 8192] [--vibrant bin/vibrant] [--device 0]

Asks one question after another of one `vibrant chat --device cuda`, each after the answer to the one before, and reads the
memory in use from nvidia-smi after each answer. Exit status 1 where it grew after the second turn, or no answers came.
Nothing else may use the GPU meanwhile.
"""
import argparse, subprocess, sys

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("model")
ap.add_argument("--turns", type=int, default=50)
ap.add_argument("-n", type=int, default=64, help="tokens of each answer")
ap.add_argument("-c", type=int, default=8192, help="context")
ap.add_argument("--vibrant", default="bin/vibrant")
ap.add_argument("--device", type=int, default=0, help="index of the GPU")
A = ap.parse_args()


def used():
    return int(subprocess.check_output(["nvidia-smi", f"--id={A.device}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]))


chat = subprocess.Popen([A.vibrant, "chat", "-m", A.model, "--device", f"cuda:{A.device}", "-n", str(A.n), "-c", str(A.c), "--temp", "0",
                         "--ignore-eos", "--verbose"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
memory, tokens = [], 0
for turn in range(A.turns):
    chat.stdin.write(f"Question {turn + 1}: what comes after {turn}?\n")
    chat.stdin.flush()
    for line in chat.stderr:  # three lines after each answer, of which "memory: ..." is the last
        if line.startswith("decode: "):
            tokens += int(line.split()[1])
            rate = line.split(", ")[1].strip()
        if line.startswith("memory: "):
            break
    else:
        sys.exit(f"check_session_memory: the chat ended in turn {turn + 1} with exit status {chat.wait()}")
    memory.append(used())
    print(f"turn {turn + 1:3}  {tokens:6} tokens  {memory[-1]:6} MiB  {rate}", flush=True)
chat.stdin.close()
if chat.wait():
    sys.exit(f"check_session_memory: exit status {chat.returncode}")
growth = max(memory[1:]) - memory[1]
print(f"{A.turns} turns, {tokens} tokens: {memory[1]} MiB after the second turn, at most {growth} more after")
if growth > 0 or tokens < A.turns:
    sys.exit(1)
