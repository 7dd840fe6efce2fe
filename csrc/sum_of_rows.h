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
 * which return VB_UNSUPPORTED where they have no such kernel. VB_SUM_OF_COLUMNS, of a vb_sum_of_columns: likewise. */
enum { VB_ROUNDED_ROWS = 2, VB_SUM_OF_PRODUCTS = 3, VB_SUM_OF_COLUMNS = 4 };

/* A sum of rows that each rank may have columns of, its own: the residual stream between the halves of layers, of which
 * only sums and norms read. Where norm[0] is NULL, nothing is prepared, and every rank gets all columns. */
typedef struct vb_sum_of_columns {
    vb_sum_of_rows rows;
    int add_parted; /* rows.add has the columns that the vb_all_reduce_columns before has left to each rank */
    int parted;     /* set: 1 if out has columns of each rank alone: rows.prepared is 1 then */
} vb_sum_of_columns;

/* vb_all_reduce_rows where out may have columns of each rank alone. With add_parted, on the communicator that has left
 * add, and of as many rows and columns. */
vb_status vb_all_reduce_columns(float *const *out, const float *const *in, vb_sum_of_columns *columns,
                                vb_communicator *communicator);

/* The struct of type whose member add is. */
#define VB_STRUCT_OF_ADD(type, add) ((type *)((char *)(add) - offsetof(type, add)))

#ifdef __cplusplus
}
#endif
#endif
