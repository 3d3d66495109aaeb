/* Inside the CUDA back end: how a loop nest is spread over threads, and who prints which class of kernels.
 *
 * Three ways, chosen by shape (plan.c):
 *
 *     THREADS   a thread per turn of the parallel outer loops; all else it does in order
 *     ROWS      a group of adjacent threads per row: the inner loops are shared out, folds go over the group
 *     COLUMNS   as ROWS where rows lie across memory: 32 adjacent rows beside each other, the group below each other
 *
 * Everything that is printed calls only runtime/cuda/autopar_rt_device.h. */
#ifndef AP_BACKEND_CUDA_CUDA_H
#define AP_BACKEND_CUDA_CUDA_H

#include "backend/emit.h"
#include "backend/nest.h"

/* kernels.cu and kernels.h of the program: each kernel as a `__global__` function and a launcher,
 *
 *     void NAME_k_softmax(aprt_device *d, const float *x0, float *y0, int64_t n0)
 *
 * which puts it on the compute stream of d; of a matrix product, the table NAME_p_dense beside it. */
ap_status ap_cuda_emit_kernels(ap_emit *e);
/* kernels.h, or kernels_cuda.h in a program that has stages on CPUs as well. */
const char *ap_cuda_kernels_header(const ap_emit *e);
/* Bytes of device memory that the kernel wants from aprt_cuda_scratch; for stage.scratch_bytes, the most of all. */
int64_t ap_cuda_scratch_bytes(const ap_emit *e, uint32_t index);
/* overlap.c: per instruction of the stage, how many of its exchanges must be over before; 0: none beside those that the
 * instructions before it have waited for. In the scratch arena. */
uint32_t *ap_cuda_arrivals(const ap_emit *e);

typedef enum ap_cuda_way { AP_CUDA_THREADS, AP_CUDA_ROWS, AP_CUDA_COLUMNS } ap_cuda_way;
typedef enum ap_cuda_room { AP_CUDA_REGISTERS, AP_CUDA_SHARED, AP_CUDA_SCRATCH } ap_cuda_room;

/* Extents stand for the most turns that a loop can have. */
typedef struct ap_cuda_plan {
    ap_cuda_way way;
    bool wide;                 /* offsets and positions need 64 bits */
    bool serial[AP_MAX_LOOPS]; /* THREADS: outer loops that one thread walks, in order */
    int lane;                  /* outer loop that adjacent threads walk; AP_CUDA_NO_LOOP */
    int vector, vector_loop;   /* elements of one access along which loop; 1: single ones */
    bool packed[256];          /* operands that are accessed so */
    int group, block;          /* threads per row, per block */
    int owners;                /* THREADS: share the rows that an update finds; each walks all turns; 1 */
    int64_t rows;              /* turns of the loops that are shared out (COLUMNS: blocks) */
    ap_cuda_room room;         /* of row temporaries */
    int turns;                 /* ROWS, COLUMNS: accesses of a thread per row, when they are written out; else 0 */
    bool keeps;                /* what several sections read is loaded once and kept in registers */
    int64_t parts;             /* of a row, folded by different groups and then together; 1: it is not cut */
    int64_t most_blocks;       /* so many have room in the scratch memory; 0: any number */
} ap_cuda_plan;
enum { AP_CUDA_NO_LOOP = -1 };

ap_cuda_plan ap_cuda_plan_nest(const ap_emit *e, uint32_t index, const ap_nest_facts *f);
/* Bytes of shared memory for temporaries of a block; of scratch memory in all. */
int64_t ap_cuda_shared_bytes(const ap_cuda_plan *p, const ap_nest *n);
int64_t ap_cuda_plan_scratch(const ap_cuda_plan *p, const ap_nest_facts *f);
int64_t ap_cuda_temp_bytes(const ap_cuda_plan *p, const ap_nest *n,
                           int i); /* of temporary i, for the rows of a block */

/* The load of an earlier inner section that has this one's element in a register when loads are kept; AP_NONE. */
uint32_t ap_cuda_kept_by(const ap_nest_facts *f, uint32_t id);

/* ---- order.c: which turns of outer loops may run side by side ---- */
/* Sets serial[l] for loops that must be walked in order: all turns that may meet in an element that one of them writes
 * are left to one thread. */
void ap_cuda_find_serial(const ap_emit *e, uint32_t index, const ap_nest_facts *f, bool serial[AP_MAX_LOOPS]);
/* How many threads may share the updates of one turn of the loops that are not serial: each owns some of the rows found
 * by an index, looks at all turns of the serial loops in their order, and does its own. 1 where that cannot be. */
int ap_cuda_find_owners(const ap_emit *e, uint32_t index, const ap_nest_facts *f, const bool serial[AP_MAX_LOOPS],
                        int64_t most);
/* The sops that this one depends on, itself too. */
bool *ap_cuda_find_needed(const ap_emit *e, const ap_nest *n, uint32_t id);
/* Does operand i begin at a multiple of so many bytes in every call, on every rank? */
bool ap_cuda_is_aligned(const ap_emit *e, uint32_t index, uint32_t i, int64_t bytes);

/* ---- text of kernels: nest.c (sections and loops), sop.c (operations) ---- */
typedef struct ap_cuda_writer {
    const ap_emit *e;
    ap_text *t;
    uint32_t index;
    const ap_kernel *k;
    const ap_nest *n;
    ap_nest_facts f;
    ap_cuda_plan p;
    int depth;
    bool at_pack;        /* the vector loop stands at the first element of an access */
    bool flat;           /* inner loops are one */
    bool walks_together; /* the section is walked by a warp in step: it has a running fold */
    bool joins_parts;    /* the inner section is the parts of its folds, done before */
    enum { AP_CUDA_WHOLE, AP_CUDA_BEFORE, AP_CUDA_ELEMENT } phase;
    bool *varies; /* per sop: along the elements of an access */
} ap_cuda_writer;
bool *ap_cuda_find_varying(const ap_cuda_writer *w);

#define ap_cuda_line(w, ...) ap_emit_line((w)->e, (w)->t, (w)->depth, __VA_ARGS__)
const char *ap_cuda_text(const ap_cuda_writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *ap_cuda_int(const ap_cuda_writer *w); /* type of offsets and positions */
const char *ap_cuda_unsigned(const ap_cuda_writer *w);
const char *ap_cuda_loop(const ap_cuda_writer *w, int l);  /* name of its variable */
const char *ap_cuda_turns(const ap_cuda_writer *w, int l); /* how often: 12, or (int)n0 */
const char *ap_cuda_strides(const ap_cuda_writer *w, const int64_t *stride, int loops);
const char *ap_cuda_fold_type(const ap_cuda_writer *w, const ap_sop *s);
const char *ap_cuda_fold_name(const ap_sop *s); /* aprt_sum, ... */
void ap_cuda_fold_start(ap_cuda_writer *w, uint32_t id);
/* The finished number of a fold as v. */
void ap_cuda_fold_end(ap_cuda_writer *w, uint32_t id);
/* All that is due in a section when its row (false) or its element (true) is known; levels of inner loops: `level` is
 * how many loops are open. */
void ap_cuda_statements(ap_cuda_writer *w, int section, int level);
/* Loads before, stores behind the elements of an access. */
void ap_cuda_pack_loads(ap_cuda_writer *w, int section);
void ap_cuda_pack_stores(ap_cuda_writer *w, int section);
bool ap_cuda_is_packed(const ap_cuda_writer *w, uint32_t id);
/* Do later sections read the element of this load from the array k, which it fills? */
bool ap_cuda_is_keeper(const ap_cuda_writer *w, uint32_t id);
/* Kernel and launch of the nest of kernel `index`; `launch` gets the lines for its launcher. */
void ap_cuda_nest(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch);

/* ---- other classes ---- */
void ap_cuda_pool(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch);
void ap_cuda_topk(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch);
void ap_cuda_gemm_table(const ap_emit *e, uint32_t index, ap_text *t);
void ap_cuda_gemm(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch);

/* Parameters of the `__global__` function; as arguments of its launch, with a comma before each. */
void ap_cuda_parameters(const ap_emit *e, ap_text *t, uint32_t index, bool restricted);
void ap_cuda_arguments(const ap_emit *e, ap_text *t, uint32_t index);
/* Does `text` contain this name, as a whole word? */
bool ap_cuda_mentions(const char *text, const char *name);

#endif
