"""Products of 16 bits by cuBLASLt, by kernels that use no instructions of Hopper, and the names of a captured call's kernels.

PyTorch cannot be told to leave Hopper's instructions alone, and what cuBLASLt proposes for an H100 has them wherever rows are whole
vectors. But it still has the algorithms of earlier GPUs: all tiles and stages of these are timed. A kernel's name, read from a
captured graph, says for which instructions it is written.
"""
import ctypes
import itertools

from bench_dense import capture
from lazily import torch

pointer, int32, int64, uint64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64
HOPPER = ("sm90", "nvjet")  # parts of the names of kernels with wgmma: of cuBLAS's older families and of its newest
F32, COMPUTE_F32 = 0, 68  # of cudaDataType and cublasComputeType_t
TYPES = {"torch.float16": 2, "torch.bfloat16": 14}  # cudaDataType by the names of PyTorch
# Of the enumerations of attributes: of a description, a layout, an algorithm's configuration and its capabilities.
TRANSA, TRANSB, BATCH_COUNT, BATCH_STRIDE = 3, 4, 5, 6
TILE, SPLITK, REDUCTION, STAGES = 1, 2, 3, 6
CAP_SPLITK, CAP_TILES, CAP_STAGES = 0, 6, 13
REDUCE_IN_FLOAT32 = 2
KERNEL_NODE = 0


class NodeParameters(ctypes.Structure):  # CUDA_KERNEL_NODE_PARAMS_v2
    _fields_ = [("function", pointer), ("sizes", ctypes.c_uint * 7), ("parameters", pointer), ("extra", pointer),
                ("kernel", pointer), ("context", pointer)]


class Heuristic(ctypes.Structure):  # cublasLtMatmulHeuristicResult_t
    _fields_ = [("algorithm", uint64 * 8), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int), ("waves", ctypes.c_float),
                ("reserved", ctypes.c_int * 4)]


def succeed(status, what):
    if status != 0:
        raise RuntimeError(f"{what}: status {status}")


def kernels(call):
    """The names of the kernels that a call of PyTorch's current device launches."""
    driver = ctypes.CDLL("libcuda.so.1")
    call()  # outside the graph: modules load
    graph = capture([call], keep_graph=True)
    handle, count = pointer(graph.raw_cuda_graph()), ctypes.c_size_t()
    succeed(driver.cuGraphGetNodes(handle, None, ctypes.byref(count)), "cuGraphGetNodes")
    nodes, names = (pointer * count.value)(), []
    succeed(driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)), "cuGraphGetNodes")
    for node in nodes:
        kind, parameters, name = ctypes.c_int(), NodeParameters(), ctypes.c_char_p()
        succeed(driver.cuGraphNodeGetType(pointer(node), ctypes.byref(kind)), "cuGraphNodeGetType")
        if kind.value != KERNEL_NODE:
            continue
        succeed(driver.cuGraphKernelNodeGetParams_v2(pointer(node), ctypes.byref(parameters)), "cuGraphKernelNodeGetParams")
        get, of = ("cuFuncGetName", parameters.function) if parameters.function else ("cuKernelGetName", parameters.kernel)
        succeed(getattr(driver, get)(ctypes.byref(name), pointer(of)), get)
        names.append(name.value.decode())
    return names


def uses_hopper(names):
    return any(part in name for part in HOPPER for name in names)


class Products:
    """cuBLASLt's products of row-major matrices in F16 or BF16, summed in float32."""

    def __init__(self):
        one = torch.ones(64, 64, device="cuda", dtype=torch.float16)
        torch.mm(one, one)  # loads the library
        with open("/proc/self/maps") as maps:
            self.library = ctypes.CDLL(next(line.split()[-1] for line in maps if "libcublasLt.so" in line))
        self.workspace = torch.empty(32 << 20, device="cuda", dtype=torch.uint8)
        self.handle, self.known, self.hopper = pointer(), {}, {}
        self.call("Create", ctypes.byref(self.handle))

    def call(self, name, *arguments):
        succeed(getattr(self.library, "cublasLt" + name)(*arguments), "cublasLt" + name)

    def set(self, name, of, attribute, value):
        self.call(name + "SetAttribute", of, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def layout(self, type, rows, columns, stride, batch, batch_stride):
        """Of a matrix of that many rows as it is stored: for the library, columns."""
        layout = pointer()
        self.call("MatrixLayoutCreate", ctypes.byref(layout), type, uint64(columns), uint64(rows), int64(stride))
        if batch > 1:
            self.set("MatrixLayout", layout, BATCH_COUNT, int32(batch))
            self.set("MatrixLayout", layout, BATCH_STRIDE, int64(batch_stride))
        return layout

    def portable(self, products, type, most):
        """Functions of one of some products of one size, each a vb_matmul_args: the fastest configurations of algorithms without
        Hopper's instructions, by a first timing of all."""
        type, x, description = TYPES[str(type)], products[0], pointer()
        types = (type,) * 4
        self.call("MatmulDescCreate", ctypes.byref(description), COMPUTE_F32, F32)
        self.set("MatmulDesc", description, TRANSA, int32(x.b_transposed))  # C turned is B turned times A turned
        self.set("MatmulDesc", description, TRANSB, int32(x.a_transposed))
        a = self.layout(type, *((x.k, x.m) if x.a_transposed else (x.m, x.k)), x.a_stride, x.batch, x.a_batch_stride)
        b = self.layout(type, *((x.n, x.k) if x.b_transposed else (x.k, x.n)), x.b_stride, x.batch, x.b_batch_stride)
        c = self.layout(type, x.m, x.n, x.c_stride, x.batch, x.c_batch_stride)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)

        def by(algorithm):
            def multiply(x):
                self.call("Matmul", self.handle, description, ctypes.byref(one), pointer(x.b), b, pointer(x.a), a,
                          ctypes.byref(zero), pointer(x.c), c, pointer(x.c), c, ctypes.byref(algorithm),
                          pointer(self.workspace.data_ptr()), ctypes.c_size_t(self.workspace.numel()),
                          pointer(torch.cuda.current_stream().cuda_stream))
            return multiply

        def fits(algorithm):
            heuristic = Heuristic()
            status = self.library.cublasLtMatmulAlgoCheck(self.handle, description, b, a, c, c, ctypes.byref(algorithm),
                                                          ctypes.byref(heuristic))
            return status == 0 and heuristic.workspace <= self.workspace.numel()

        timed = []
        for id in self.ids(type):
            for algorithm in self.configurations(id, types):
                if not fits(algorithm):
                    continue
                multiply = by(algorithm)
                try:
                    multiply(x)  # outside a graph: modules load
                except RuntimeError:  # what the check let through
                    continue
                if id not in self.hopper:
                    self.hopper[id] = uses_hopper(kernels(lambda: multiply(x)))
                if self.hopper[id]:
                    break
                timed.append((self.time(multiply, products), len(timed), multiply))
        return [multiply for _, _, multiply in sorted(timed)[:most]]

    def ids(self, type):
        """The library's algorithms for a type."""
        if type not in self.known:
            ids, count = (ctypes.c_int * 200)(), ctypes.c_int()
            self.call("MatmulAlgoGetIds", self.handle, COMPUTE_F32, F32, type, type, type, type, len(ids), ids, ctypes.byref(count))
            self.known[type] = ids[:count.value]
        return self.known[type]

    def configurations(self, id, types):
        """Each tile and number of stages of an algorithm; where it can, also with two to eight blocks that share k."""
        first, written = (uint64 * 8)(), ctypes.c_size_t()
        if self.library.cublasLtMatmulAlgoInit(self.handle, COMPUTE_F32, F32, *types, id, ctypes.byref(first)) != 0:
            return

        def capability(attribute, most):
            values = (ctypes.c_int * most)()
            status = self.library.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(first), attribute, values,
                                                                    ctypes.c_size_t(ctypes.sizeof(values)), ctypes.byref(written))
            return list(values[:written.value // 4]) if status == 0 else []

        tiles, stages = capability(CAP_TILES, 1024) or [0], capability(CAP_STAGES, 1024) or [0]
        shares = (1, 2, 4, 8) if capability(CAP_SPLITK, 1) == [1] else (1,)
        for tile, stage, share in itertools.product(tiles, stages, shares):
            algorithm = (uint64 * 8)(*first)
            scheme = REDUCE_IN_FLOAT32 if share > 1 else 0
            for attribute, value in ((TILE, tile), (STAGES, stage), (SPLITK, share), (REDUCTION, scheme)):
                self.library.cublasLtMatmulAlgoConfigSetAttribute(ctypes.byref(algorithm), attribute, ctypes.byref(int32(value)),
                                                                  ctypes.c_size_t(4))
            yield algorithm

    def time(self, multiply, products):
        """Milliseconds of all products, the second time that they are replayed as a graph."""
        graph = capture([lambda x=x: multiply(x) for x in products])
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
