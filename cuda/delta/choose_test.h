/* choose_test.h: the test of delta/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "delta/choose.h"

MAP_FAMILY("Gated delta nets (`delta/choose.h`)", delta, DELTA)

static void test_delta(void) {
    CHECK(choose_causal_conv(1, 512, 8192) == DELTA_CONV && choose_causal_conv(65536, 1, 64) == DELTA_NONE,
          "causal_conv");
    for (int64_t key_dim = 1; key_dim <= 256; key_dim++) {
        vb_gated_delta_args a = {0};
        a.batch = a.seq = 1, a.key_heads = 16, a.value_heads = 32, a.key_dim = key_dim, a.value_dim = 128;
        const delta_kernel kernel = choose_gated_delta(&a);
        const int64_t most = kernel == DELTA_KEYS_64    ? 64
                             : kernel == DELTA_KEYS_128 ? 128
                             : kernel == DELTA_KEYS_256 ? 256
                                                        : 0;
        CHECK(key_dim <= most && (most == 64 || key_dim > most / 2), "gated_delta, keys of %ld: %s", (long)key_dim,
              delta_kernel_info(kernel).name);
    }
}
