/* sum_of_rows.h: how devices are asked for the sums over ranks between the halves of a layer: not installed. */
#ifndef VB_SUM_OF_ROWS_H
#define VB_SUM_OF_ROWS_H

#include "vibrant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* These stand for `rounded` in a device's all_reduce, whose `add` is then the member of a struct.
 * VB_ROUNDED_ROWS, of a vb_sum_of_rows: a device that prepares nothing need not know it.
 * VB_SUM_OF_PRODUCTS, of a vb_sum_of_products of one row, and in[r] is product[r]: for GPUs of this process alone,
 * which return VB_UNSUPPORTED where they have no such kernel. VB_SUM_OF_COLUMNS, of a vb_sum_of_rows: likewise. */
enum { VB_ROUNDED_ROWS = 2, VB_SUM_OF_PRODUCTS = 3, VB_SUM_OF_COLUMNS = 4 };

/* The struct of type whose member is at address. */
#define VB_STRUCT_OF(type, member, address) ((type *)((char *)(address) - offsetof(type, member)))

#ifdef __cplusplus
}
#endif
#endif
