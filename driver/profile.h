/* profile: what this machine's CPUs reach, measured with our own kernels and said as a cluster file.
 *
 *     cases   a module in state explicit, whose nodes are the kernels and exchanges to measure (profile_cases.c)
 *     run     lowered, built, run several times with a trace (profile_run.c): seconds of each instruction
 *     fit     the figures of a cluster from these (profile_fit.c): numbers only
 *     file    the cluster as YAML (profile_file.c), which ap_cluster_from_file reads */
#ifndef AP_DRIVER_PROFILE_H
#define AP_DRIVER_PROFILE_H

#include "ir/program.h"
#include "passes/cluster.h"

typedef enum ap_profile_kind {
    AP_PROFILE_FILL, /* makes what others read; not fitted */
    AP_PROFILE_LAUNCH,
    AP_PROFILE_MEMORY,
    AP_PROFILE_ROWS,
    AP_PROFILE_PRODUCT,
    AP_PROFILE_CONV,
    AP_PROFILE_EXCHANGE,
    AP_PROFILE_COPY, /* between a GPU and the host */
    AP_PROFILE_COUNT
} ap_profile_kind;
const char *ap_profile_kind_str(ap_profile_kind k);

/* Bytes of a case, and how many were touched since they were (passes/local_touch.h). */
typedef struct ap_profile_touch {
    int64_t bytes, distance;
} ap_profile_touch;
enum { AP_PROFILE_TOUCHES = 8 };

/* One instruction. Work is what the pricing of local programs counts (passes/local_price.c). */
typedef struct ap_profile_case {
    const char *name;
    ap_profile_kind kind;
    ap_work work;
    int ntouches; /* 0: all bytes have their own number as distance */
    ap_profile_touch touch[AP_PROFILE_TOUCHES];
    int64_t bytes; /* touched; EXCHANGE: that cross a link; COPY: copied */
    int64_t steps; /* EXCHANGE, COPY: latencies */
    double seconds;
    int64_t predicted_ps; /* after the fit */
} ap_profile_case;

typedef struct ap_profile {
    uint32_t ncases;
    ap_profile_case *at;
} ap_profile;

/* The text of the module. `devices` do all the same at the same time, so that what they share is shared as it is when a
 * plan uses all of them. `quick`: few and small cases. */
void ap_profile_cases(ap_text *out, int32_t devices, bool quick);

typedef struct ap_profile_options {
    const char *dir; /* an existing folder of its own; everything is made in it */
    int32_t devices;
    bool quick;
    bool jit; /* by LLVM in this process (driver/jit.h), instead of by the C compiler */
    void (*progress)(void *user, const char *what, int done, int of); /* or NULL */
    void *user;
} ap_profile_options;

/* Builds and runs the cases; lower quartiles over runs and devices. `out_program` can be priced again. */
ap_status ap_profile_measure(ap_ctx *ctx, const ap_profile_options *opt, ap_profile *out, ap_program **out_program);

/* The same of the GPUs of this machine, by autopar_profile_cuda: 0 devices are all that there are. `out_base` is their
 * cluster before the fit. AP_ERR_ENV without CUDA, GPU or driver. */
ap_status ap_profile_cuda_measure(ap_ctx *ctx, const ap_profile_options *opt, ap_profile *out, ap_cluster *out_base);
/* Sets predicted_ps of such a case, which belongs to no program. */
void ap_profile_cuda_price(const ap_cluster *c, ap_profile_case *k);

/* Sets what was measured in `io`: peak, curve, tiles and calls of products, convolutions, vector, functions, lanes,
 * caches, memory bandwidth, launch, link, and what joins a GPU to the memory of its host. What has no case stays as it
 * is. */
void ap_profile_fit(ap_arena *arena, const ap_profile *p, ap_cluster *io);

/* A uniform cluster of one host as a file; `comment` is lines without their mark. */
void ap_profile_file(const ap_cluster *c, const char *comment, ap_text *out);
/* Bytes that this machine, or the control group that we are in, lets programs use. */
int64_t ap_profile_memory(void);

#endif
