// sort.cuh: the lines of a sort, as sort.cu and sort_radix.cu have them.
#ifndef VB_CUDA_STRIDED_SORT_CUH
#define VB_CUDA_STRIDED_SORT_CUH

#include "strided/views.cuh"

namespace vb {

struct SortLines {
    View values, indices, in; // strides along the dimensions of the lines; values or indices may have no data
    int64_t sizes[VB_MAX_DIMS], values_step, indices_step, in_step;
    int64_t lines, n, k; // the first k of n elements are written
    int rank;
    bool descending;
};

VB_DEVICE int64_t line_place(const View &v, const SortLines &p, int64_t line) {
    int64_t place = 0;
    for (int d = p.rank - 1; d >= 0; d--) {
        const int64_t quotient = line / p.sizes[d];
        place += (line - quotient * p.sizes[d]) * v.strides[d];
        line = quotient;
    }
    return place;
}

// Lines of up to SORT_BLOCK elements, and of more.
vb_status sort_blocks(const SortLines &lines, vb_stream *stream);
vb_status sort_radix(const SortLines &lines, vb_stream *stream);

} // namespace vb
#endif
