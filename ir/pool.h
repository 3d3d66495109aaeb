/* Windows over dimensions: what the operator `pool` and its kernels share.
 *
 *     window o of a dimension: elements o*stride - lo + t*dilation for t in [0, kernel), as far as they are there
 *
 * lo and hi are how far windows reach beyond both ends. What lies there takes no part: it is never the largest element,
 * adds nothing, and AVG does not count it. AVG_PADS counts it up to hi. */
#ifndef AP_IR_POOL_H
#define AP_IR_POOL_H

#include "ir/pointwise.h"
#include "ir/type.h"

struct ap_text; /* ir/base/text.h */
struct ap_lex;  /* ir/lex.h */

typedef enum ap_pool_kind {
    AP_POOL_MAX,
    AP_POOL_SUM,
    AP_POOL_AVG,
    AP_POOL_AVG_PADS,
    AP_POOL_ARGMAX, /* i64: row-major index over the windowed dimensions of the operand; the first on ties */
    AP_POOL_KIND_COUNT
} ap_pool_kind;

extern const char *const ap_pool_text[AP_POOL_KIND_COUNT]; /* max, sum, avg, avg_pads, argmax */

#define AP_WINDOW_MAX ((int64_t)1 << 30) /* every number of a window */

/* kernel 0: the dimension has no window and passes. */
typedef struct ap_window {
    int64_t kernel, stride, dilation, lo, hi;
} ap_window;

/* Per dimension of the operand; those with a window have one factor or none. */
typedef struct ap_pool_attr {
    ap_pool_kind kind;
    bool ceil; /* a last window that is not whole counts, if it starts before the end of the operand */
    ap_window window[AP_MAX_RANK];
} ap_pool_attr;

/* How many windows there are. */
int64_t ap_window_count(const ap_window *w, int64_t extent, bool ceil);
/* The places [*begin, *end) of window `at` that are elements; and how many are elements or padding. */
void ap_window_taps(const ap_window *w, int64_t extent, int64_t at, int64_t *begin, int64_t *end);
int64_t ap_window_padded_taps(const ap_window *w, int64_t extent, int64_t at);

/* A dimension with a window, as it lies in memory. */
typedef struct ap_pool_dim {
    int64_t extent, count; /* elements, windows */
    ap_window window;
    int64_t from, to; /* strides of operand and result, in elements */
} ap_pool_dim;

/* One result: the window with these numbers. `load` gives the element at an offset from where the dimensions begin; it
 * may note that there is none. */
typedef ap_scalar ap_pool_load(void *user, int64_t offset);
ap_scalar ap_pool_fold(ap_pool_kind kind, ap_dtype dtype, int n, const ap_pool_dim *dim, const int64_t *at,
                       ap_pool_load *load, void *user);

/* "3/2~2+1:1": kernel, stride unless 1, dilation unless 1, padding unless there is none. */
void ap_window_print(const ap_window *w, struct ap_text *out);
ap_status ap_window_parse(struct ap_lex *l, ap_window *out);

#endif
