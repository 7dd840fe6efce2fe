/* ptx_kernels.h: the texts of the kernels that vb_ptx_emit writes. Not installed. */
#ifndef VB_PTX_KERNELS_H
#define VB_PTX_KERNELS_H

extern const char vb_ptx_gemm_naive[], vb_ptx_gemm_tiled[], vb_ptx_gemm_mma[], vb_ptx_gemm_wmma[], vb_ptx_gemm_q4k[],
    vb_ptx_softmax[], vb_ptx_norm[], vb_ptx_attention[];

/* ptx_entries.c */
extern const char vb_ptx_gemm_quantized[], vb_ptx_gemv[], vb_ptx_gemv_quantized[], vb_ptx_dequantize[],
    vb_ptx_quantize[], vb_ptx_decode_attention[], vb_ptx_add_rms_norm[], vb_ptx_rope[], vb_ptx_elements[],
    vb_ptx_bias[], vb_ptx_cache_write[], vb_ptx_argmax_blocks[], vb_ptx_argmax_final[],
    vb_ptx_argmax_take[];

#endif
