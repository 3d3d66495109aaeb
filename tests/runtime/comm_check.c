/* Conformance of communicators, for ranks that are threads (run by itself), ranks that are processes (under mpirun) and
 * ranks with GPUs (comm_check_nccl, which has comm_work.cu for comm_work.c):
 *
 *   comm_check exchanges RANKS          every kind x element type x shape of groups x counts, in place and not
 *   comm_check programs RANKS FROM TO   random programs number FROM ... TO - 1: stages, channels, depths, microbatches
 *   comm_check mixed RANKS FROM TO      the same, with some of the stages on processors
 *
 * What must come out is computed by plain loops, one rank after the other, with the folds in the order of the group's
 * list: so equal bits here are equal bits between communicators. Where a communicator has an order of its own, sums of
 * floats are near that, everything else is equal, and random programs have values whose sums are exact in any order.
 * Rank 0 compares and prints. */
#include "comm_values.h"
#include "comm_work.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_RANKS = 16, LENGTH = COMM_LENGTH, MAX_CHANNELS = 12, MAX_EXCHANGES = 3, MAX_PIECES = 400, MAX_MB = 6 };

typedef struct draws {
    uint64_t state;
} draws;

/* In [lo, hi]. */
static int draw(draws *d, int lo, int hi)
{
    d->state = comm_mix(d->state);
    return lo + (int)(d->state % (uint64_t)(hi - lo + 1));
}

/* Where stages are, unless programs are mixed. */
#ifdef COMM_GPUS
static const comm_work *const on = &comm_on_gpus;
#else
static const comm_work *const on = &comm_on_processors;
#endif

static const comm_work *work_of(const aprt_stage *s)
{
    return s->target ? on : &comm_on_processors;
}

static bool is_leader(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return !rank || strcmp(rank, "0") == 0;
}

static const int32_t dtypes[] = {APRT_F32, APRT_U8,  APRT_I8,  APRT_U16, APRT_I16, APRT_I32,
                                 APRT_I64, APRT_F16, APRT_F64, APRT_U32, APRT_U64, APRT_BF16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* NaN wins. */
static double most_or_least(bool most, double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    return most ? fmax(a, b) : fmin(a, b);
}

/* One step of a fold; f32 and narrower in single precision. */
static comm_number fold(int32_t t, aprt_fold f, comm_number a, comm_number b)
{
    comm_number x;
    if (comm_is_float(t) && f != APRT_FOLD_SUM)
        x.f = most_or_least(f == APRT_FOLD_MAX, a.f, b.f);
    else if (comm_is_float(t))
        x.f = t == APRT_F64 ? a.f + b.f : (double)((float)a.f + (float)b.f);
    else if (f == APRT_FOLD_SUM)
        x.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
    else if (t == APRT_U64)
        x.i = ((uint64_t)a.i > (uint64_t)b.i) == (f == APRT_FOLD_MAX) ? a.i : b.i;
    else
        x.i = (a.i > b.i) == (f == APRT_FOLD_MAX) ? a.i : b.i;
    return x;
}

/* ---- an exchange by plain loops ---- */

static int64_t there(const aprt_exchange *x, const int64_t *at, int32_t p, int32_t d)
{
    int64_t extent = d < x->ndims ? x->extent[d] : 1;
    for (int32_t i = 0; i < x->ncounts; i++) {
        int64_t left = x->count[i].value.base - x->count[i].per_peer * p;
        for (int a = 0; a < APRT_MAX_AXES; a++)
            left += x->count[i].value.step[a] * at[a];
        if (x->count[i].dim == d)
            extent = left < 0 ? 0 : left < extent ? left : extent;
    }
    return extent;
}

/* dst of the rank at position `me` of a list of `size`, whose operands are src[position]; by the formulas of
 * autopar_rt.h. `at`: its coordinates. At most two dimensions. */
static void plain_exchange(const aprt_exchange *x, int32_t size, int32_t me, const int64_t *at, const char *const *src,
                           char *dst)
{
    const int64_t s1 = x->ndims > 1 ? x->src_stride[1] : 0, d1 = x->ndims > 1 ? x->dst_stride[1] : 0;
    const bool folds = x->kind == APRT_ALL_REDUCE || x->kind == APRT_REDUCE_SCATTER;
    const int64_t skip = x->kind == APRT_ALL_TO_ALL || x->kind == APRT_REDUCE_SCATTER ? x->src_me * me : 0;
    for (int32_t p = 0; p < (folds ? 1 : size); p++)
        for (int64_t i = 0; i < there(x, at, p, 0); i++)
            for (int64_t j = 0; j < there(x, at, p, 1); j++) {
                const int64_t s = i * x->src_stride[0] + j * s1 + skip, d = i * x->dst_stride[0] + j * d1;
                comm_number y = comm_get(x->dtype, src[p], s);
                for (int32_t q = 1; folds && q < size; q++)
                    y = fold(x->dtype, x->fold, y, comm_get(x->dtype, src[q], s));
                comm_put(x->dtype, dst, (folds ? 0 : x->dst_peer * p) + d, y);
            }
}

/* ---- exchanges: one program for each element type, in which one follows the other ---- */

enum { HALF = 32768, COUNT = 2048, ROUNDS = 2, GROUPS = 3, MAX_ORDERS = 64 };
#define FILLED(size) (HALF / (size) < 4096 ? HALF / (size) : 4096)

typedef struct suite {
    aprt_exchange x[MAX_ORDERS]; /* as the stage has them */
    bool in_place[MAX_ORDERS];
    int32_t list[GROUPS][MAX_RANKS];
    aprt_group group[GROUPS];
    uint32_t n;
    int32_t dtype, ranks;
} suite;

static const suite *running; /* GPUs cannot read what it lies in; set before a run */

static bool is_special(const aprt_exchange *x)
{
    return x->fold != APRT_FOLD_SUM && (x->kind == APRT_ALL_REDUCE || x->kind == APRT_REDUCE_SCATTER);
}

/* Bytes of a round of one order in the output, and where that of a rank begins. */
static const int64_t each = (int64_t)COUNT * 8;
static int64_t place_of(const suite *s, int32_t rank, uint32_t order, int64_t round)
{
    return (((int64_t)rank * s->n + order) * ROUNDS + round) * each;
}

static int exchange_run(aprt_device *d)
{
    const suite *s = running;
    const comm_work *w = work_of(d->stage);
    const int32_t size = aprt_dtype_bytes(s->dtype);
    for (uint32_t i = 0; i < s->n; i++)
        for (int64_t round = 0; round < ROUNDS; round++) {
            char *src = d->arena, *dst = s->in_place[i] ? src : d->arena + HALF;
            w->at(d, 0);
            if (!s->in_place[i])
                w->set(d, dst, 0x55, (int64_t)COUNT * size);
            w->fill(d, s->dtype, is_special(&s->x[i]), round, FILLED(size), src);
            w->at(d, 1);
            int status = w->exchange(d, i, src, dst);
            if (status != APRT_OK)
                return status;
            w->copy(d, (char *)d->output[0] + place_of(s, d->rank, i, round), dst, (int64_t)COUNT * size);
        }
    return APRT_OK;
}

static int one_microbatch(aprt_device *d)
{
    return aprt_stage_run(d, 0);
}

static const aprt_instr exchange_instrs[] = {{"fill", "n", "Op", 0}, {"exchange", "x", "Op", 0}};
static const aprt_port exchange_in = {"x", APRT_U8, 1, {1}};

static bool run_suite(const suite *s, char *got)
{
    const int32_t zero = 0;
    const int64_t mine = s->n * ROUNDS * each;
    const aprt_port out_port = {"y", APRT_U8, 1, {s->ranks * mine}};
    const aprt_written written = {.output = 0, .ndims = 1, .extent = {mine}, .stride = {1}, .offset = {0, {mine}}};
    const aprt_stage stage = {.name = "s",
                              .nranks = s->ranks,
                              .naxes = 1,
                              .axis_size = {s->ranks},
                              .axis_stride = {1},
                              .arena_bytes = 2 * HALF,
                              .ninputs = 1,
                              .noutputs = 1,
                              .input = &zero,
                              .output = &zero,
                              .ngroups = s->ranks % 2 ? GROUPS - 1 : GROUPS,
                              .ninstrs = 2,
                              .group = s->group,
                              .instr = exchange_instrs,
                              .run = exchange_run,
                              .list = one_microbatch,
                              .nwritten = 1,
                              .written = &written,
                              .target = on->target,
                              .nexchanges = s->n,
                              .exchange = s->x};
    const aprt_program program = {.abi = APRT_ABI,
                                  .name = "check",
                                  .nranks = s->ranks,
                                  .microbatches = 1,
                                  .ninputs = 1,
                                  .noutputs = 1,
                                  .input = &exchange_in,
                                  .output = &out_port,
                                  .nstages = 1,
                                  .stage = &stage};
    aprt_instance *in;
    running = s;
    bool good = aprt_open(&program, NULL, &in) == APRT_OK &&
                aprt_run(in, (const void *const[]){s}, (void *const[]){got}) == APRT_OK;
    if (!good)
        fprintf(stderr, "comm_check: %s\n", aprt_error(in));
    aprt_close(in);
    return good;
}

/* Sums in any order of so many values of at most 1: each addition is off by half a unit in the last place of the sum.
 */
static double sum_error(int32_t t, int32_t size)
{
    const double unit = t == APRT_F64    ? 0x1p-53
                        : t == APRT_F32  ? 0x1p-24
                        : t == APRT_F16  ? 0x1p-11
                        : t == APRT_BF16 ? 0x1p-8
                                         : 0;
    return size * size * unit;
}

/* COUNT elements. */
static bool is_right(const suite *s, uint32_t order, const char *want, const char *got)
{
    const aprt_exchange *x = &s->x[order];
    const bool folds = x->kind == APRT_ALL_REDUCE || x->kind == APRT_REDUCE_SCATTER;
    const bool near = folds && x->fold == APRT_FOLD_SUM && comm_is_float(s->dtype) && !on->in_order;
    const double error = near ? sum_error(s->dtype, s->group[x->group].size) : 0;
    const size_t size = (size_t)aprt_dtype_bytes(s->dtype);
    for (int64_t i = 0; i < COUNT; i++) {
        if (memcmp(want + (size_t)i * size, got + (size_t)i * size, size) == 0)
            continue;
        const comm_number a = comm_get(s->dtype, want, i), b = comm_get(s->dtype, got, i);
        if (!comm_is_float(s->dtype) || (!(isnan(a.f) && isnan(b.f)) && !(fabs(a.f - b.f) <= error)))
            return false;
    }
    return true;
}

/* What rank `rank` must have in its HALF of memory. src: room for what its peers have. */
static void expect(const suite *s, uint32_t order, int32_t rank, int64_t round, char *const *src, char *want)
{
    const aprt_exchange *x = &s->x[order];
    const aprt_group *g = &s->group[x->group];
    const int32_t size = aprt_dtype_bytes(s->dtype);
    const int64_t at[APRT_MAX_AXES] = {rank};
    int32_t i = 0;
    while (g->rank[i] != rank)
        i++;
    const int32_t me = i % g->size, *list = g->rank + i / g->size * g->size;
    for (int32_t p = 0; p < g->size; p++)
        for (int64_t k = 0; k < FILLED(size); k++)
            comm_put(s->dtype, src[p], k, comm_value(s->dtype, is_special(x), list[p], round, k));
    memset(want, 0x55, HALF);
    if (s->in_place[order])
        memcpy(want, src[me], HALF);
    plain_exchange(x, g->size, me, at, (const char *const *)src, want);
}

/* Runs it, and compares on rank 0. */
static bool check_suite(const suite *s)
{
    char *got = calloc((size_t)s->ranks * s->n * ROUNDS, (size_t)each), *src[MAX_RANKS], *want = malloc(HALF);
    for (int32_t p = 0; p < MAX_RANKS; p++)
        src[p] = malloc(HALF);
    bool good = run_suite(s, got);
    for (uint32_t i = 0; good && is_leader() && i < s->n; i++)
        for (int32_t rank = 0; good && rank < s->ranks; rank++)
            for (int64_t round = 0; good && round < ROUNDS; round++) {
                expect(s, i, rank, round, src, want);
                good = is_right(s, i, want, got + place_of(s, rank, i, round));
                if (!good)
                    fprintf(stderr, "comm_check: exchange %u of %s on %d ranks, groups %u%s: wrong on rank %d\n", i,
                            aprt_dtype_name(s->dtype), s->ranks, s->x[i].group, s->in_place[i] ? ", in place" : "",
                            rank);
            }
    for (int32_t p = 0; p < MAX_RANKS; p++)
        free(src[p]);
    free(want);
    free(got);
    return good;
}

/* One list, the list reversed, pairs far apart. */
static void make_groups(suite *s)
{
    for (int shape = 0; shape < GROUPS; shape++) {
        for (int32_t i = 0; i < s->ranks; i++)
            s->list[shape][i] = shape == 0 ? i : shape == 1 ? s->ranks - 1 - i : i / 2 + i % 2 * (s->ranks / 2);
        s->group[shape] = (aprt_group){1, s->ranks, s->list[shape]};
        if (shape == 2)
            s->group[shape] = (aprt_group){s->ranks / 2, 2, s->list[shape]};
    }
}

static void add_order(suite *s, const aprt_exchange *x, uint32_t group, bool in_place)
{
    aprt_exchange *to = &s->x[s->n];
    *to = *x;
    to->dtype = s->dtype;
    to->group = group;
    if (in_place)
        memcpy(to->src_stride, to->dst_stride, sizeof to->src_stride);
    s->in_place[s->n++] = in_place;
}

static bool check_exchanges(int32_t ranks)
{
    const aprt_count by_peer = {0, {17, {0}}, 10}, by_peer_inside = {1, {17, {0}}, 10}, by_rank = {0, {17, {-5}}, 0};
    const aprt_count seven = {0, {7, {0}}, 0}, nothing = {0, {-3, {0}}, 0};
    const aprt_count both[] = {{0, {17, {0}}, 10}, {1, {7, {-2}}, 0}};
    bool good = true;
    for (size_t t = 0; t < DTYPES && good; t++) {
        suite s = {.dtype = dtypes[t], .ranks = ranks};
        make_groups(&s);
        for (uint32_t g = 0; g < (ranks % 2 ? GROUPS - 1u : GROUPS); g++) {
            const int64_t n = s.group[g].size;
            const aprt_exchange all[] = {
                {APRT_ALL_GATHER, 0, 0, 0, 2, {5, 12}, {40, 1}, {n * 12, 1}, 0, 12, 0, NULL},
                {APRT_ALL_GATHER, 0, 0, 0, 1, {200}, {1}, {1}, 0, 200, 0, NULL},
                {APRT_REDUCE_SCATTER, APRT_FOLD_SUM, 0, 0, 2, {20, 11}, {11 * n, 1}, {11, 1}, 11, 0, 0, NULL},
                {APRT_REDUCE_SCATTER, APRT_FOLD_SUM, 0, 0, 1, {150}, {1}, {1}, 150, 0, 0, NULL},
                {APRT_REDUCE_SCATTER, APRT_FOLD_MIN, 0, 0, 1, {300}, {1}, {2}, 300, 0, 0, NULL},
                {APRT_ALL_REDUCE, APRT_FOLD_SUM, 0, 0, 1, {1999}, {1}, {1}, 0, 0, 0, NULL},
                {APRT_ALL_REDUCE, APRT_FOLD_MAX, 0, 0, 2, {43, 45}, {1, 43}, {46, 1}, 0, 0, 0, NULL},
                {APRT_ALL_REDUCE, APRT_FOLD_SUM, 0, 0, 1, {5}, {3}, {1}, 0, 0, 0, NULL},
                {APRT_ALL_TO_ALL, 0, 0, 0, 2, {16, 8}, {8 * n, 1}, {8, 1}, 8, 128, 0, NULL},
                {APRT_ALL_TO_ALL, 0, 0, 0, 1, {0}, {1}, {1}, 0, 0, 0, NULL},
                {APRT_ALL_GATHER, 0, 0, 0, 2, {10, 20}, {20, 1}, {20, 1}, 0, 200, 1, &by_peer},
                {APRT_ALL_GATHER, 0, 0, 0, 2, {20, 10}, {10, 1}, {10 * n, 1}, 0, 10, 1, &by_peer_inside},
                {APRT_REDUCE_SCATTER, APRT_FOLD_SUM, 0, 0, 2, {10, 20}, {20, 1}, {20, 1}, 200, 0, 1, &by_rank},
                {APRT_ALL_REDUCE, APRT_FOLD_SUM, 0, 0, 2, {10, 199}, {199, 1}, {199, 1}, 0, 0, 1, &seven},
                {APRT_ALL_REDUCE, APRT_FOLD_SUM, 0, 0, 2, {10, 20}, {20, 1}, {20, 1}, 0, 0, 1, &nothing},
                {APRT_ALL_TO_ALL, 0, 0, 0, 2, {10, 4}, {4 * n, 1}, {4, 1}, 4, 40, 2, both},
            };
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                for (int in_place = 0; in_place < 1 + (all[i].kind == APRT_ALL_REDUCE); in_place++)
                    add_order(&s, &all[i], g, in_place);
        }
        good = check_suite(&s);
    }
    return good;
}

/* ---- random programs ---- */

/* A program, and what its functions do. */
typedef struct random_program {
    uint64_t seed;
    int32_t ranks;
    bool coarse, mixed;
    aprt_program program;
    aprt_stage stage[MAX_RANKS];
    aprt_channel channel[MAX_CHANNELS];
    aprt_piece piece[MAX_CHANNELS][MAX_PIECES];
    aprt_group group[MAX_RANKS][2];
    int32_t list[MAX_RANKS][2][MAX_RANKS];
    aprt_exchange exchange[MAX_RANKS][MAX_EXCHANGES];
    int32_t nexchanges[MAX_RANKS];
    int32_t input[MAX_RANKS][MAX_CHANNELS + 1], output[MAX_RANKS][MAX_CHANNELS + 1];
    aprt_written written;
    aprt_port out_port;
} random_program;

static const random_program *random_now; /* GPUs cannot read what it lies in; set before a run */

static const aprt_instr program_instrs[] = {{"work", "n", "Op", 0}, {"exchange", "x", "Op", 0}};

/* Gives others a chance, sometimes. */
static void dawdle(const random_program *p, const aprt_device *d)
{
    uint64_t h = comm_mix(p->seed + (uint64_t)d->rank * 977 + (uint64_t)d->mb);
    for (uint64_t i = 0; i < h % 4; i++)
        sched_yield();
}

static int random_run(aprt_device *d)
{
    const random_program *p = random_now;
    const comm_work *w = work_of(d->stage);
    const int32_t s = (int32_t)(d->stage - p->stage);
    float *v = (float *)d->arena, *y = v + LENGTH * MAX_RANKS;
    w->at(d, 0);
    dawdle(p, d);
    w->first(d, p->seed, p->coarse, v);
    for (uint32_t i = 1; i < d->stage->ninputs; i++)
        w->add_slot(d, p->channel[-1 - d->stage->input[i]].dtype, d->input[i], v);
    for (int32_t e = 0; e < p->nexchanges[s]; e++) {
        w->at(d, 1);
        w->spread(d, LENGTH * MAX_RANKS, v, y);
        int status = w->exchange(d, (uint32_t)e, v, y);
        if (status != APRT_OK)
            return status;
        w->halve_add(d, v, y);
    }
    w->at(d, 0);
    if (p->coarse)
        w->wrap_all(d, v);
    for (uint32_t i = 1; i < d->stage->noutputs; i++)
        w->fill_slot(d, p->channel[-1 - d->stage->output[i]].dtype, v, d->output[i]);
    w->copy(d, (float *)d->output[0] + (d->mb * p->ranks + d->rank) * LENGTH, v, (int64_t)sizeof(float) * LENGTH);
    return APRT_OK;
}

static int random_list(aprt_device *d)
{
    const int32_t *in = d->stage->input, *out = d->stage->output; /* all but the first are channels */
    int status = APRT_OK;
    int64_t microbatches = d->stage->axis_size[0];
    for (int64_t mb = 0; mb < microbatches; mb++) {
        for (uint32_t i = 1; i < d->stage->ninputs && status == APRT_OK; i++)
            status = aprt_recv(d, (uint32_t)(-1 - in[i]), mb);
        for (uint32_t i = 1; i < d->stage->noutputs && status == APRT_OK; i++)
            status = aprt_claim(d, (uint32_t)(-1 - out[i]), mb);
        if (status == APRT_OK)
            status = aprt_stage_run(d, mb);
        for (uint32_t i = 1; i < d->stage->ninputs && status == APRT_OK; i++)
            status = aprt_free(d, (uint32_t)(-1 - in[i]), mb);
        for (uint32_t i = 1; i < d->stage->noutputs && status == APRT_OK; i++)
            status = aprt_send(d, (uint32_t)(-1 - out[i]), mb);
        if (status != APRT_OK)
            return status;
    }
    return APRT_OK;
}

/* The slot of a destination rank cut into boxes, each from some rank of the source: rows of a matrix, or its columns.
 */
static void draw_pieces(random_program *p, draws *d, int32_t c)
{
    aprt_channel *ch = &p->channel[c];
    const aprt_stage *src = &p->stage[ch->src_stage], *dst = &p->stage[ch->dst_stage];
    for (int32_t r = 0; r < dst->nranks; r++) {
        const int rows = (int[]){1, 4, 6, 8, 12}[draw(d, 0, 4)], columns = LENGTH / rows;
        const bool by_column = draw(d, 0, 1);
        const int lines = by_column ? columns : rows;
        for (int at = 0; at < lines;) {
            const int some = draw(d, (lines + 5) / 6, lines), left = lines - at, n = some < left ? some : left;
            aprt_piece *q = &p->piece[c][ch->npieces++];
            *q = (aprt_piece){.src_rank = src->first_rank + draw(d, 0, src->nranks - 1),
                              .dst_rank = dst->first_rank + r,
                              .ndims = 2,
                              .extent = {by_column ? rows : n, by_column ? n : columns},
                              .dst_offset = by_column ? at : at * columns,
                              .dst_stride = {columns, 1}};
            /* from anywhere of the source, straight or turned */
            const int64_t e0 = q->extent[0], e1 = q->extent[1];
            const bool turned = draw(d, 0, 1);
            q->src_stride[0] = turned ? 1 : e1;
            q->src_stride[1] = turned ? e0 : 1;
            q->src_offset = draw(d, 0, LENGTH - (int)(e0 * e1));
            at += n;
        }
    }
    ch->piece = p->piece[c];
}

static void draw_channels(random_program *p, draws *d, int32_t stages)
{
    for (int32_t dst = 1; dst < stages; dst++)
        for (int32_t n = draw(d, 1, 2); n > 0 && p->program.nchannels < MAX_CHANNELS; n--) {
            const int32_t c = (int32_t)p->program.nchannels++, src = n == 1 ? dst - 1 : draw(d, 0, dst - 1);
            static const int32_t types[] = {APRT_F32, APRT_F32, APRT_F64, APRT_I8, APRT_F16};
            p->channel[c] = (aprt_channel){.name = "h",
                                           .dtype = types[draw(d, 0, 4)],
                                           .src_stage = src,
                                           .dst_stage = dst,
                                           .src_depth = draw(d, 1, 3),
                                           .dst_depth = draw(d, 1, 3),
                                           .src_bytes = LENGTH * 8,
                                           .dst_bytes = LENGTH * 8};
        }
    for (uint32_t c = 0; c < p->program.nchannels; c++) {
        aprt_channel *ch = &p->channel[c];
        aprt_stage *src = &p->stage[ch->src_stage], *dst = &p->stage[ch->dst_stage];
        ch->src_output = (int32_t)src->noutputs;
        p->output[ch->src_stage][src->noutputs++] = -1 - (int32_t)c;
        ch->dst_input = (int32_t)dst->ninputs;
        p->input[ch->dst_stage][dst->ninputs++] = -1 - (int32_t)c;
        ch->src_at = src->arena_bytes;
        src->arena_bytes += ch->src_bytes * ch->src_depth;
        ch->dst_at = dst->arena_bytes;
        dst->arena_bytes += ch->dst_bytes * ch->dst_depth;
        draw_pieces(p, d, (int32_t)c);
    }
}

static void draw_exchange(draws *d, int64_t size, uint32_t group, aprt_exchange *x)
{
    const int kind = draw(d, 0, 3);
    const int64_t n = draw(d, 1, LENGTH / (int)size);
    *x = (aprt_exchange){.kind = (aprt_exchange_kind)kind,
                         .fold = (aprt_fold)draw(d, 0, 2),
                         .dtype = APRT_F32,
                         .group = group,
                         .ndims = 1,
                         .extent = {n},
                         .src_stride = {1},
                         .dst_stride = {1}};
    if (kind == APRT_ALL_GATHER)
        x->dst_peer = n;
    else if (kind == APRT_ALL_TO_ALL)
        x->dst_peer = x->src_me = n;
    else if (kind == APRT_REDUCE_SCATTER)
        x->src_me = n;
    else
        x->extent[0] = LENGTH;
}

static void draw_stage(random_program *p, draws *d, int32_t s, int32_t first, int32_t ranks, int32_t microbatches)
{
    p->stage[s] = (aprt_stage){.name = "stage",
                               .first_rank = first,
                               .nranks = ranks,
                               .naxes = 2,
                               .axis_size = {microbatches, ranks},
                               .axis_stride = {ranks, 1},
                               .arena_bytes = 2 * (int64_t)sizeof(float) * LENGTH * MAX_RANKS,
                               .ninputs = 1,
                               .noutputs = 1,
                               .input = p->input[s],
                               .output = p->output[s],
                               .ngroups = 2,
                               .group = p->group[s],
                               .ninstrs = 2,
                               .instr = program_instrs,
                               .run = random_run,
                               .list = random_list,
                               .nwritten = 1,
                               .written = NULL,
                               .target = p->mixed && draw(d, 0, 1) ? NULL : on->target,
                               .exchange = p->exchange[s]};
    for (int g = 0; g < 2; g++) {
        const int32_t size = g == 0 ? ranks : ranks % 2 ? 1 : 2;
        for (int32_t i = 0; i < ranks; i++)
            p->list[s][g][i] = first + i;
        for (int32_t i = ranks - 1; i > 0; i--) { /* in any order */
            int32_t j = draw(d, 0, i), t = p->list[s][g][i];
            p->list[s][g][i] = p->list[s][g][j];
            p->list[s][g][j] = t;
        }
        p->group[s][g] = (aprt_group){ranks / size, size, p->list[s][g]};
    }
    p->nexchanges[s] = draw(d, 0, MAX_EXCHANGES);
    p->stage[s].nexchanges = (uint32_t)p->nexchanges[s];
    for (int32_t e = 0; e < p->nexchanges[s]; e++) {
        const uint32_t g = (uint32_t)draw(d, 0, 1);
        draw_exchange(d, p->group[s][g].size, g, &p->exchange[s][e]);
    }
}

/* The written boxes differ between stages in their first rank. */
static void draw_program(random_program *p, uint64_t which, int32_t ranks, bool mixed, aprt_written *written)
{
    draws d = {comm_mix(which)};
    memset(p, 0, sizeof *p);
    p->seed = d.state;
    p->ranks = ranks;
    p->mixed = mixed;
    p->coarse = !on->in_order;
    const int32_t microbatches = draw(&d, 1, MAX_MB);
    int32_t stages = 0;
    for (int32_t first = 0; first < ranks; stages++) {
        const int32_t some = draw(&d, 1, ranks - first < 4 ? ranks - first : 4);
        draw_stage(p, &d, stages, first, some, microbatches);
        written[stages] = (aprt_written){.output = 0,
                                         .ndims = 1,
                                         .extent = {LENGTH},
                                         .stride = {1},
                                         .offset = {(int64_t)first * LENGTH, {(int64_t)ranks * LENGTH, LENGTH}}};
        p->stage[stages].written = &written[stages];
        first += some;
    }
    p->out_port = (aprt_port){"y", APRT_F32, 1, {(int64_t)microbatches * ranks * LENGTH}};
    p->program = (aprt_program){.abi = APRT_ABI,
                                .name = "random",
                                .nranks = ranks,
                                .microbatches = microbatches,
                                .ninputs = 1,
                                .noutputs = 1,
                                .input = &exchange_in,
                                .output = &p->out_port,
                                .nstages = (uint32_t)stages,
                                .stage = p->stage,
                                .channel = p->channel};
    draw_channels(p, &d, stages);
}

/* All of it, one rank after the other. slot: [channel][rank]. */
static void plain_stage(const random_program *p, int32_t s, int64_t mb, char (*slot)[MAX_RANKS][LENGTH * 8], float *out)
{
    static float v[MAX_RANKS][LENGTH * MAX_RANKS], y[MAX_RANKS][LENGTH * MAX_RANKS];
    const aprt_stage *st = &p->stage[s];
    for (int32_t r = 0; r < st->nranks; r++) {
        for (int64_t i = 0; i < LENGTH; i++)
            v[r][i] = comm_first_value(p->seed, p->coarse, st->first_rank + r, mb, i);
        for (uint32_t i = 1; i < st->ninputs; i++)
            for (int64_t k = 0; k < LENGTH; k++)
                v[r][k] +=
                    comm_from_slot(p->channel[-1 - st->input[i]].dtype, slot[-1 - st->input[i]][st->first_rank + r], k);
    }
    for (int32_t e = 0; e < p->nexchanges[s]; e++) {
        const aprt_exchange *x = &p->exchange[s][e];
        const aprt_group *g = &st->group[x->group];
        for (int32_t r = 0; r < st->nranks; r++)
            for (int64_t i = LENGTH; i < (int64_t)LENGTH * MAX_RANKS; i++)
                v[r][i] = v[r][i % LENGTH];
        memset(y, 0, sizeof y);
        for (int32_t i = 0; i < st->nranks; i++) {
            const int32_t *list = g->rank + i / g->size * g->size;
            const char *src[MAX_RANKS];
            const int64_t at[APRT_MAX_AXES] = {0};
            for (int32_t q = 0; q < g->size; q++)
                src[q] = (const char *)v[list[q] - st->first_rank];
            plain_exchange(x, g->size, i % g->size, at, src, (char *)y[list[i % g->size] - st->first_rank]);
        }
        for (int32_t r = 0; r < st->nranks; r++)
            for (int64_t i = 0; i < LENGTH; i++)
                v[r][i] = 0.5f * v[r][i] + y[r][i];
    }
    for (int32_t r = 0; p->coarse && r < st->nranks; r++)
        for (int64_t i = 0; i < LENGTH; i++)
            v[r][i] = comm_wrap(v[r][i]);
    for (int32_t r = 0; r < st->nranks; r++)
        memcpy(out + (mb * p->ranks + st->first_rank + r) * LENGTH, v[r], sizeof(float) * LENGTH);
    /* what leaves, piece by piece, element by element */
    for (uint32_t o = 1; o < st->noutputs; o++) {
        const int32_t c = -1 - st->output[o];
        const aprt_channel *ch = &p->channel[c];
        for (int32_t k = 0; k < ch->npieces; k++) {
            const aprt_piece *q = &ch->piece[k];
            for (int64_t i = 0; i < q->extent[0]; i++)
                for (int64_t j = 0; j < q->extent[1]; j++) {
                    char one[8];
                    const float from =
                        v[q->src_rank - st->first_rank][q->src_offset + i * q->src_stride[0] + j * q->src_stride[1]];
                    comm_put(ch->dtype, one, 0, comm_to_slot(ch->dtype, from));
                    comm_put(ch->dtype, slot[c][q->dst_rank],
                             q->dst_offset + i * q->dst_stride[0] + j * q->dst_stride[1], comm_get(ch->dtype, one, 0));
                }
        }
    }
}

static bool check_program(uint64_t which, int32_t ranks, bool mixed)
{
    static aprt_written written[MAX_RANKS];
    static char slot[MAX_CHANNELS][MAX_RANKS][LENGTH * 8];
    static random_program p;
    aprt_instance *in;
    draw_program(&p, which, ranks, mixed, written);
    random_now = &p;
    const size_t n = (size_t)(p.program.microbatches * ranks * LENGTH);
    float *got = malloc(n * sizeof *got), *want = malloc(n * sizeof *want);
    bool good = aprt_open(&p.program, NULL, &in) == APRT_OK;
    for (int64_t mb = 0; mb < p.program.microbatches; mb++)
        for (int32_t s = 0; s < (int32_t)p.program.nstages; s++)
            plain_stage(&p, s, mb, slot, want);
    /* a second run finds everything as the first one did; on GPUs the third one is that of graphs */
    for (int turn = 0; good && turn < (on->target ? 3 : 2); turn++) {
        memset(got, 0xff, n * sizeof *got);
        good = aprt_run(in, (const void *const[]){&p}, (void *const[]){got}) == APRT_OK;
        if (good && is_leader() && memcmp(got, want, n * sizeof *got) != 0) {
            fprintf(stderr, "comm_check: program %llu on %d ranks: wrong numbers\n", (unsigned long long)which, ranks);
            good = false;
        }
    }
    if (*aprt_error(in))
        fprintf(stderr, "comm_check: program %llu on %d ranks: %s\n", (unsigned long long)which, ranks, aprt_error(in));
    aprt_close(in);
    free(got);
    free(want);
    return good;
}

int main(int argc, char **argv)
{
    const int32_t ranks = argc > 2 ? (int32_t)strtol(argv[2], NULL, 10) : 0;
    bool good = ranks >= 1 && ranks <= MAX_RANKS;
    if (good && argc == 3 && strcmp(argv[1], "exchanges") == 0) {
        good = check_exchanges(ranks);
    } else if (good && argc == 5 && (strcmp(argv[1], "programs") == 0 || strcmp(argv[1], "mixed") == 0)) {
        const uint64_t to = strtoull(argv[4], NULL, 10);
        for (uint64_t i = strtoull(argv[3], NULL, 10); good && i < to; i++)
            good = check_program(i, ranks, strcmp(argv[1], "mixed") == 0);
    } else {
        fprintf(stderr, "usage: comm_check exchanges RANKS | programs RANKS FROM TO | mixed RANKS FROM TO\n");
        return 2;
    }
    if (is_leader())
        printf("%s\n", good ? "right" : "wrong");
    return good ? 0 : 1;
}
