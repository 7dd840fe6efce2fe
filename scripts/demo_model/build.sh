#!/usr/bin/env bash
# Makes the embedded demo model anew: corpus, tokenizer, training, quantization, score, golden answers. What `make
# demo-model` runs. Further arguments go to train.py, for example --steps 2000 for a quick trial.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${OUT:-$root/build/demo-model}
PYTHON=${PYTHON:-python3}

command -v "$PYTHON" >/dev/null || { echo "demo-model: $PYTHON is missing: install Python 3.11 or newer" >&2; exit 1; }
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "demo-model: $PYTHON is older than 3.11" >&2; exit 1; }
"$PYTHON" -c 'import numpy, torch, torch.nn.attention.varlen' 2>/dev/null || { echo "demo-model: PyTorch 2.11 or newer and numpy are missing: pip install torch numpy" >&2; exit 1; }
"$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { echo "demo-model: no CUDA GPU, which the training needs (about seven minutes on one H200)" >&2; exit 1; }

PYTHONUNBUFFERED=1 "$PYTHON" "$here/train.py" --out "$out" "$@"
"$PYTHON" "$here/reference.py" "$out/demo.gguf" --golden "$out/golden.json"
mkdir -p "$root/internal/language/demomodel/testdata"
cp "$out/demo.gguf" "$root/internal/language/demomodel/demo.gguf"
cp "$out/questions.json" "$out/golden.json" "$root/internal/language/demomodel/testdata/"
echo "demo-model: wrote internal/language/demomodel; now run make demo-eval, and bring docs/demo-model.md up to date"
