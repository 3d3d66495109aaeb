/* SPDX-License-Identifier: MIT
 *
 * The target for CUDA: what a rank with a GPU has, and what the files of this folder share. It has two streams: the
 * stage's kernels and library calls are on `compute`; collectives are on `moving`, which waits for an event of
 * `compute` before it reads; `compute` waits for an event of an exchange when the program says so, and for all of them
 * when a microbatch is over. A channel between GPUs has a stream of its own. The thread of the device puts everything
 * on streams and waits at the end of a run.
 *
 * What fails on the way is kept in `why` (the first failure counts) and told by cuda_status. */
#ifndef APRT_CUDA_DEVICE_H
#define APRT_CUDA_DEVICE_H

#include "autopar_rt_cuda.h"
#include "instance.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

enum {
    CUDA_CHUNK = 4 << 20, /* bytes of a piece that goes through pinned memory */
    CUDA_NSTAGING = 2
};

/* A piece of pinned memory on its way from or to the device. */
typedef struct cuda_staging {
    char *pinned;
    cudaEvent_t moved;
} cuda_staging;

/* A channel, at one of its ends. */
typedef struct cuda_channel {
    bool ours;       /* the stage of the device is at an end of it */
    ncclComm_t comm; /* of the ranks at both ends, if both have GPUs; else slots are mirrored in the host's memory */
    cudaStream_t stream;
    int64_t bytes; /* of `space`: all that this rank sends, or receives, of one microbatch */
    char *space;
    cudaEvent_t *slot;  /* per slot. Source: it has been sent. Destination: it is there. */
    cudaEvent_t *freed; /* per slot, destination: what was in it is not needed any more */
    cudaEvent_t ready;  /* source: the slot is full. Mirrored: the copy of a slot has been made. */
    int64_t fetched;    /* mirrored source: the microbatch that was copied to the host last; -1 none */
} cuda_channel;

/* A microbatch as a graph: captured at its second run. */
typedef struct cuda_graph {
    cudaGraphExec_t exec;
    bool has_run;
} cuda_graph;

/* While time is measured: when an instruction began on `compute`, where `at` is ninstrs if nothing did; when an
 * exchange began or ended on `moving`. */
typedef enum cuda_mark_kind { CUDA_COMPUTES, CUDA_EXCHANGE_BEGINS, CUDA_EXCHANGE_ENDS } cuda_mark_kind;
typedef struct cuda_mark {
    cudaEvent_t event;
    cuda_mark_kind kind;
    uint32_t at;
    int64_t mb;
} cuda_mark;

typedef struct cuda_product cuda_product; /* gemm.c */

typedef struct cuda_device {
    int gpu, multiprocessors;
    cudaStream_t compute, moving;
    cudaEvent_t ready;     /* what an exchange reads */
    cudaEvent_t *arrived;  /* [nexchanges]: it is over */
    cudaEvent_t in_flight; /* of the latest exchange, unless `compute` waits for it already */
    cudaEvent_t over;      /* the end of what was put on `compute` */
    cuda_staging staging[CUDA_NSTAGING];
    uint32_t turn; /* of staging */
    char *packed;  /* CUDA_CHUNK: outputs in order, before they are downloaded */
    char *workspace;
    const void **input; /* per port of the program, NULL if the stage does not have it */
    void **output;
    aprt_cuda_bad *bad, *bad_seen; /* [microbatches], of the device and pinned */
    char *exchange_space;          /* packed boxes */
    int64_t exchange_bytes;
    /* libraries */
    cublasLtHandle_t lt;
    cudnnHandle_t dnn;
    bool tf32;
    cuda_product *product; /* a list */
    /* who it meets */
    ncclComm_t *group;     /* per group of the stage */
    cuda_channel *channel; /* per channel of the program */
    bool broken;           /* connections were ended */
    cuda_graph *graph;     /* [microbatches] */
    bool graphs;           /* AUTOPAR_CUDA_GRAPH */
    /* time */
    cuda_mark *mark;
    size_t nmarks, capacity;
    cudaEvent_t origin;
    double origin_seconds;
    bool in_range; /* NVTX */
    /* the first failure */
    int status;
    uint32_t failed_at;
    aprt_failure why;
} cuda_device;

static inline cuda_device *cuda_of(const aprt_device *d)
{
    return d->on;
}

/* ---- target.c: failures ---- */
/* Keeps the failure if it is the first one and returns its status. */
int cuda_fail(aprt_device *d, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* What was kept, told with its place; APRT_OK if nothing. */
int cuda_status(aprt_device *d);
int cuda_check(aprt_device *d, cudaError_t error, const char *what);
int cuda_check_nccl(aprt_device *d, ncclResult_t result, const char *what);
/* Waits on the host; looks after failures of others and of connections meanwhile. */
int cuda_wait(aprt_device *d, cudaEvent_t event);
/* Before memory is freed: until all is done, or cannot be any more. */
void cuda_settle(aprt_device *d);

#define CUDA_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const int try_ = (call);                                                                                       \
        if (try_ != APRT_OK)                                                                                           \
            return try_;                                                                                               \
    } while (0)
/* The name of the function is the text. */
#define CUDA_DO(d, function, ...) CUDA_TRY(cuda_check(d, function(__VA_ARGS__), #function))
#define CUDA_NCCL(d, function, ...) CUDA_TRY(cuda_check_nccl(d, function(__VA_ARGS__), #function))

/* ---- memory.c ---- */
int cuda_memory_open(aprt_device *d);
void cuda_memory_close(aprt_device *d);
int cuda_allocate(aprt_device *d, int64_t bytes, const char *what, void *out);
int cuda_event(aprt_device *d, cudaEvent_t *out); /* without time */
int cuda_upload(aprt_device *d, void *dst, const void *src, int64_t bytes);
/* Inputs of the program; outputs that this rank writes. */
int cuda_upload_inputs(aprt_device *d, const void *const *inputs);
int cuda_download_outputs(aprt_device *d, void *const *outputs);

/* ---- connect.c ---- */
size_t cuda_meeting_bytes(const aprt_layout *layout);
int cuda_meeting_make(const aprt_layout *layout, int32_t first_rank, int32_t nranks, char *bytes, aprt_failure *why);
int cuda_connect(aprt_device *d, const char *bytes);
/* The first connection that has failed by itself, as a failure. */
int cuda_connections_check(aprt_device *d);
void cuda_connections_abort(aprt_device *d);
void cuda_connections_close(aprt_device *d);

/* ---- exchange.c, channel.c ---- */
int64_t cuda_exchange_bytes(const aprt_stage *s);
int cuda_exchanges_open(aprt_device *d);
void cuda_exchanges_close(aprt_device *d);
int cuda_exchange(aprt_device *d, const aprt_exchange *x, const void *src, void *dst);
/* What follows on `compute` comes behind all exchanges. */
int cuda_exchanges_join(aprt_device *d);
int cuda_recv(aprt_device *d, uint32_t channel, int64_t mb);
int cuda_claim(aprt_device *d, uint32_t channel, int64_t mb);
int cuda_free(aprt_device *d, uint32_t channel, int64_t mb);
int cuda_send(aprt_device *d, uint32_t channel, int64_t mb);
/* Slots of channels whose other end has no GPU: memory of the host, the streams and events of the others. */
int cuda_channels_open(aprt_device *d);
void cuda_channels_close(aprt_device *d);

/* ---- gemm.c ---- */
void cuda_products_close(aprt_device *d);

/* ---- measure.c ---- */
int cuda_measure_begin(aprt_device *d);
void cuda_measure_mark(aprt_device *d, cuda_mark_kind kind); /* of the instruction at hand */
void cuda_measure_idle(aprt_device *d);                      /* which has done nothing on `compute` and waits there */
void cuda_measure_pause(aprt_device *d);                     /* a microbatch is over */
int cuda_measure_end(aprt_device *d);                        /* when all is done: gives times to the profile */
void cuda_measure_close(aprt_device *d);

/* ---- box.cu: enqueued, failures by cuda_check ---- */
/* dst[b] = src[a] for elements [first, last) of the box, in row-major order, the first of them at dst[b of first]. */
cudaError_t cuda_box_copy(cudaStream_t stream, int blocks, const aprt_box *box, int64_t first, int64_t last,
                          int32_t size, const void *src, void *dst);
/* dst[b] = fold over p of src[p * apart + a], in order, f16 and bf16 in single precision. */
cudaError_t cuda_box_fold(cudaStream_t stream, int blocks, const aprt_box *box, int32_t dtype, aprt_fold fold,
                          int32_t n, int64_t apart, const void *src, void *dst);

/* What follows a product: dst[b] = after(dst[b], bias[a]), or, without `sums`, of zeros. */
cudaError_t cuda_box_after(cudaStream_t stream, int blocks, const aprt_box *box, int32_t dtype, aprt_cuda_after after,
                           bool sums, const void *bias, void *dst);
/* Addresses of a batch of matrices of elements of `size` bytes: of A, then of B, by a and b of the box `ab`, then of C,
 * by a of the box c. */
cudaError_t cuda_box_point(cudaStream_t stream, int blocks, const aprt_box *ab, const aprt_box *c, int64_t size,
                           const void *x, const void *y, const void *z, void *out);

/* Blocks of 256 threads for so many elements. */
static inline int cuda_blocks(const aprt_device *d, int64_t elements)
{
    const int64_t most = (int64_t)cuda_of(d)->multiprocessors * 16, want = (elements + 255) / 256;
    return (int)(want < 1 ? 1 : want < most ? want : most);
}

#endif
