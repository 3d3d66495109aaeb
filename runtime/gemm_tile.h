/* SPDX-License-Identifier: MIT
 *
 * The matrix product in vector code, written once and included for each element type and instruction set; gemm.c
 * states the property that everything here keeps: chains of fma over DEPTH steps of k, added in order.
 *
 *                    panel: W columns            C is made tile by tile, up to ROWS x W, in registers. A step of the
 *                    +----+----+----+            kernel takes a row of a panel of B and a column of a strip of A:
 *                  k | B  |    |    |            one broadcast per row, one fma per vector.
 *           k        +----+----+----+
 *        +------+    +----+----+----+            Of B a block of DEPTH x WIDTH is copied, panel by panel, so that it
 *   ROWS |  A   |    | C  |    |    |            stays in the second-level cache while the strips of A go by; the
 *        +------+    +----+----+----+            first strip makes the copy while it computes. Strips of A are copied
 *        | strip|    |    |    |    |            to the first-level cache. The sums over DEPTH are added to C.
 *        +------+    +----+----+----+
 *
 * One strip (few rows) needs no copy of B, and takes wider panels: what counts there is reading B once. One row goes
 * its own ways, `row` and `dots`, and a column is a row. A transposed matrix is turned while it is copied.
 *
 * The includer defines
 *   T, NAME(x)           the element; a name for this inclusion
 *   TARGET               attribute of the functions
 *   V, LANES             vector and number of elements
 *   ZERO SET LOAD STORE FMA(x, y, z)                    vector operations; unaligned
 *   MASK FIRST(count) LOAD_FIRST STORE_FIRST(p, mask, v)    on the first `count` lanes; zero in the others
 *   TURN(src, offset, dst, ld)  dst[c*ld + r] = src[offset[r] + c], c < 4, r < LANES
 *   TURN_ALL(...)        the same for c < LANES
 *   ROWS                 most rows of a strip, at most 14: ROWS x 2 vectors must fit in registers
 *   TILES(X)             X(rows, vectors) for all tiles, vectors in 1, 2, 4
 *   KEEP_TILES(X)        the same for the first of several strips: rows from ROWS/2 + 1 on, vectors 1 and 2
 *   WIDE4                most rows with which a panel is four vectors wide
 * and undefines them. */
#ifndef APRT_GEMM_TILE_H
#define APRT_GEMM_TILE_H
enum {
    DEPTH = APRT_GEMM_CHAIN,
    STRIDE = DEPTH + 16, /* rows of the copied strip, so that they do not meet in the cache */
    EVERY = 8,           /* steps between two addresses of the next strip to fetch */
    AHEAD = 24,          /* rows of B to fetch ahead when they are not adjacent */
    SOON = 16            /* rows of a panel to fetch ahead for a single row */
};
/* gcc would make copies of at most a few KB string instructions, which take long to start. */
#define STAY_A_LOOP __asm__ volatile("")
#define FOUR(X) X(0) X(1) X(2) X(3)
#define EIGHT(X) FOUR(X) X(4) X(5) X(6) X(7)
#define ALL_ROWS(X) EIGHT(X) X(8) X(9) X(10) X(11) X(12) X(13)
#endif

enum { NAME(WIDTH) = 1536 / (int)sizeof(T), NAME(LINE) = 64 / (int)sizeof(T), NAME(PANEL) = 2 * LANES };

/* Where a tile's part of B is, and what to do with it. */
typedef struct NAME(panel) {
    const T *b;
    int64_t ld;
    T *copy; /* where tiles that keep B put its rows, adjacent */
    /* What to fetch meanwhile of the next strip of A, from soon[0], after half of the steps from
     * soon[1], addresses soon_step elements apart. */
    uintptr_t soon[2];
    int64_t soon_step;
} NAME(panel);

/* What follows the product of a block of B: its columns begin at j. */
typedef struct NAME(follow) {
    aprt_after *after;
    const void *with;
    int64_t j;
} NAME(follow);

/* C[mr, w] = (add ? C : 0) + A B over kc steps; w is the columns of nv vectors, or fewer when that is one. */
typedef void NAME(tile_fn)(int64_t kc, const T *a, const NAME(panel) * p, bool add, T *c, int64_t ldc, int64_t w);

#define EACH(X, i)                                                                                                     \
    if (i < mr) {                                                                                                      \
        X(i, 0)                                                                                                        \
        if (nv > 1) {                                                                                                  \
            X(i, 1)                                                                                                    \
        }                                                                                                              \
        if (nv > 2) {                                                                                                  \
            X(i, 2) X(i, 3)                                                                                            \
        }                                                                                                              \
    }
#define DECLARE(i) V c##i##_0 = ZERO, c##i##_1 = ZERO, c##i##_2 = ZERO, c##i##_3 = ZERO;
#define ADD(i, j) c##i##_##j = LOAD(c + i * ldc + j * LANES) + c##i##_##j;
#define PUT(i, j) STORE(c + i * ldc + j * LANES, c##i##_##j);
#define MULTIPLY(i, j) c##i##_##j = FMA(x, b##j, c##i##_##j);
#define ADD_ROW(i) EACH(ADD, i)
#define ADD_FIRST_ROW(i)                                                                                               \
    if (i < mr)                                                                                                        \
        c##i##_0 = LOAD_FIRST(c + i * ldc, first) + c##i##_0;
#define PUT_ROW(i) EACH(PUT, i)
#define PUT_FIRST_ROW(i)                                                                                               \
    if (i < mr)                                                                                                        \
        STORE_FIRST(c + i * ldc, first, c##i##_0);
#define MULTIPLY_ROW(i)                                                                                                \
    if (i < mr) {                                                                                                      \
        V x = SET(a[l + i * STRIDE]);                                                                                  \
        EACH(MULTIPLY, i)                                                                                              \
    }

/* Inlined with constants for mr, nv, keep and far (rows of B are not adjacent), which leaves straight code. */
TARGET static inline __attribute__((always_inline)) void NAME(tile)(const int mr, const int nv, const bool keep,
                                                                    const bool far, int64_t kc, const T *a,
                                                                    const NAME(panel) * p, bool add, T *c, int64_t ldc,
                                                                    int64_t w)
{
    const T *b = p->b;
    T *copy = p->copy;
    const int64_t ld = far ? p->ld : nv * LANES, ahead = (mr > ROWS / 2 ? AHEAD : AHEAD / 3) * ld * (int64_t)sizeof(T);
    const bool part = nv == 1 && w < LANES;
    const MASK first = FIRST(w);
    ALL_ROWS(DECLARE)
    uintptr_t soon = p->soon[0];
    for (int64_t l = 0, until = 0; l < kc;) {
        until = kc - l < EVERY ? kc : l + EVERY;
        if (!far) {
            __builtin_prefetch((const void *)soon, 0, 2);
            soon = l < kc / 2 && until >= kc / 2 ? p->soon[1] : soon + (uintptr_t)p->soon_step * sizeof(T);
        }
        for (; l < until; l++, b += ld) {
#define COLUMN(j) V b##j = nv > j ? LOAD(b + j * LANES) : ZERO;
            FOUR(COLUMN)
#undef COLUMN
            if (far)
                for (int j = 0; j < nv * LANES; j += NAME(LINE))
                    __builtin_prefetch((const void *)((uintptr_t)(b + j) + (uintptr_t)ahead));
            if (keep) {
                STORE(copy, b0);
                if (nv > 1)
                    STORE(copy + LANES, b1);
                copy += nv * LANES;
            }
            ALL_ROWS(MULTIPLY_ROW)
        }
    }
    if (add && part) {
        ALL_ROWS(ADD_FIRST_ROW)
    } else if (add) {
        ALL_ROWS(ADD_ROW)
    }
    if (part) {
        ALL_ROWS(PUT_FIRST_ROW)
    } else {
        ALL_ROWS(PUT_ROW)
    }
}

#undef EACH
#undef DECLARE
#undef ADD
#undef PUT
#undef MULTIPLY
#undef ADD_ROW
#undef ADD_FIRST_ROW
#undef PUT_ROW
#undef PUT_FIRST_ROW
#undef MULTIPLY_ROW

#define TILE_FN(kind, mr, nv, keep, far)                                                                               \
    TARGET static void NAME(kind##_##mr##_##nv)(int64_t kc, const T *a, const NAME(panel) * p, bool add, T *c,         \
                                                int64_t ldc, int64_t w)                                                \
    {                                                                                                                  \
        NAME(tile)(mr, nv, keep, far, kc, a, p, add, c, ldc, w);                                                       \
    }
#define NEAR_FN(mr, nv) TILE_FN(near, mr, nv, false, false)
#define FAR_FN(mr, nv) TILE_FN(far, mr, nv, false, true)
#define KEEP_FN(mr, nv) TILE_FN(keep, mr, nv, true, true)
TILES(NEAR_FN)
TILES(FAR_FN)
KEEP_TILES(KEEP_FN)
#undef TILE_FN
#undef NEAR_FN
#undef FAR_FN
#undef KEEP_FN

/* By rows and the logarithm of the vectors. */
#define LOG(nv) (nv == 4 ? 2 : nv - 1)
#define NEAR_ROW(mr, nv) [mr][LOG(nv)] = NAME(near_##mr##_##nv),
#define FAR_ROW(mr, nv) [mr][LOG(nv)] = NAME(far_##mr##_##nv),
#define KEEP_ROW(mr, nv) [mr][LOG(nv)] = NAME(keep_##mr##_##nv),
static NAME(tile_fn) *const NAME(tiles_near)[ROWS + 1][3] = {TILES(NEAR_ROW)};
static NAME(tile_fn) *const NAME(tiles_far)[ROWS + 1][3] = {TILES(FAR_ROW)};
static NAME(tile_fn) *const NAME(tiles_keep)[ROWS + 1][3] = {KEEP_TILES(KEEP_ROW)};
#undef LOG
#undef NEAR_ROW
#undef FAR_ROW
#undef KEEP_ROW

/* dst[c*ld + r] = src[r*rs + c*cs] for r < rows and c < cols, LANES rows at a time; the last ones, when they are fewer,
 * are made up with any numbers. Fast where cs is 1. */
TARGET static void NAME(turn)(const T *src, int64_t rs, int64_t cs, int64_t rows, int64_t cols, T *dst, int64_t ld)
{
    for (int64_t r0 = 0; r0 < rows; r0 += LANES) {
        int64_t count = rows - r0 < LANES ? rows - r0 : LANES, done = 0, offset[LANES];
        const T *from = src + r0 * rs;
        for (int r = 0; r < LANES; r++)
            offset[r] = (r < count ? r : count - 1) * rs;
        for (; cs == 1 && done + LANES <= cols; done += LANES)
            TURN_ALL(from + done, offset, dst + done * ld + r0, ld);
        for (; cs == 1 && done + 4 <= cols; done += 4)
            TURN(from + done, offset, dst + done * ld + r0, ld);
        for (; done < cols; done++)
            for (int r = 0; r < LANES; r++)
                dst[done * ld + r0 + r] = from[offset[r] + done * cs];
    }
}

/* A strip of A, rows x kc, to the rows of `to`; `left` rows are there to be read. */
TARGET static void NAME(copy_strip)(const T *a, int64_t rs, int64_t cs, int64_t rows, int64_t left, int64_t kc, T *to)
{
    if (rs == 1 && cs != 1) {
        int64_t whole = (rows + 3) & ~(int64_t)3;
        NAME(turn)(a, cs, rs, kc, whole <= left ? whole : rows, to, STRIDE);
        return;
    }
    const MASK last = FIRST(kc % LANES);
    for (int64_t i = 0; i < rows; i++, a += rs, to += STRIDE) {
        int64_t l = 0;
        for (; cs == 1 && l + LANES <= kc; l += LANES) {
            STORE(to + l, LOAD(a + l));
            STAY_A_LOOP;
        }
        if (cs == 1 && l < kc)
            STORE(to + l, LOAD_FIRST(a + l, last));
        for (; cs != 1 && l < kc; l++)
            to[l] = a[l * cs];
    }
}

/* A panel of B, kc x w, to kc rows of `full` elements; what is beyond w is any numbers. */
TARGET static void NAME(copy_panel)(const T *b, int64_t rs, int64_t cs, int64_t kc, int64_t w, T *to, int64_t full)
{
    if (cs != 1) {
        NAME(turn)(b, cs, rs, w, kc, to, full);
        return;
    }
    const MASK first = FIRST(w);
    for (int64_t l = 0; l < kc; l++)
        STORE(to + l * LANES, LOAD_FIRST(b + l * rs, first));
}

/* The logarithm of the vectors in a panel of at most n columns, and of one vector when there are fewer. */
static int NAME(vectors)(int64_t m, int64_t n)
{
    int log = m <= WIDE4 ? 2 : 1;
    while (log > 0 && (int64_t)LANES << log > n)
        log--;
    return log;
}

/* The number of pieces of at most `most`, and where piece i begins when they are as even as can be. */
static int64_t NAME(pieces)(int64_t all, int64_t most)
{
    return all / most + (all % most != 0);
}

static int64_t NAME(piece)(int64_t all, int64_t count, int64_t i)
{
    int64_t rest = all % count;
    return all / count * i + (i < rest ? i : rest);
}

TARGET static void NAME(zero)(int64_t m, int64_t n, T *c, int64_t rsc)
{
    for (int64_t i = 0; i < m; i++)
        memset(c + i * rsc, 0, (size_t)n * sizeof(T));
}

/* sum += a B over k steps: rows of B, eight of which go by at a time, since memory likes a few long runs. */
TARGET static void NAME(row)(int64_t n, int64_t k, const T *a, int64_t csa, const T *b, int64_t rsb, T *sum)
{
    const MASK last = FIRST(n % LANES);
    const int64_t whole = n - n % LANES;
    int64_t l = 0;
    for (; l + 8 <= k; l += 8, b += 8 * rsb) {
#define SCALE(s) const V x##s = SET(a[(l + s) * csa]);
#define STEP(s) v = FMA(x##s, LOAD(b + s * rsb + j), v);
#define STEP_LAST(s) v = FMA(x##s, LOAD_FIRST(b + s * rsb + whole, last), v);
        EIGHT(SCALE)
        for (int64_t j = 0; j < whole; j += LANES) {
            V v = LOAD(sum + j);
            EIGHT(STEP)
            STORE(sum + j, v);
        }
        if (whole < n) {
            V v = LOAD(sum + whole);
            EIGHT(STEP_LAST)
            STORE(sum + whole, v);
        }
#undef SCALE
#undef STEP
#undef STEP_LAST
    }
    for (; l < k; l++, b += rsb) {
        const V x = SET(a[l * csa]);
        for (int64_t j = 0; j < whole; j += LANES)
            STORE(sum + j, FMA(x, LOAD(b + j), LOAD(sum + j)));
        if (whole < n)
            STORE(sum + whole, FMA(x, LOAD_FIRST(b + whole, last), LOAD(sum + whole)));
    }
}

/* A row of C, in parts whose sums stay in the first-level cache. */
TARGET static void NAME(rows)(int64_t n, int64_t k, const T *a, int64_t csa, const T *b, int64_t rsb, bool add, T *c)
{
    enum { PART = 16384 / (int)sizeof(T) };
    T sum[PART];
    for (int64_t j0 = 0; j0 < n; j0 += PART) {
        const int64_t w = n - j0 < PART ? n - j0 : PART;
        for (int64_t l = 0; l < k; l += DEPTH) {
            for (int64_t j = 0; j < w; j += LANES) {
                STORE(sum + j, ZERO);
                STAY_A_LOOP;
            }
            NAME(row)(w, k - l < DEPTH ? k - l : DEPTH, a + l * csa, csa, b + l * rsb + j0, rsb, sum);
            for (int64_t j = 0; j < w; j++)
                c[j0 + j] = add || l > 0 ? c[j0 + j] + sum[j] : sum[j];
        }
    }
}

/* A row of C from a transposed B: two vectors of columns at a time, turned beside the sums. Long runs of one row are
 * what memory likes: while LANES steps are made, what will be needed BESIDE steps later is fetched of some rows. */
TARGET static void NAME(dots)(int64_t n, int64_t k, const T *a, int64_t csa, const T *b, int64_t ld, bool add, T *c)
{
    enum { COLUMNS = 2 * LANES, BESIDE = 4 * COLUMNS };
    int64_t offset[COLUMNS];
    for (int64_t j = 0; j < n; j += COLUMNS, b += COLUMNS * ld, c += COLUMNS) {
        const int64_t w = n - j < COLUMNS ? n - j : COLUMNS;
        const MASK first = FIRST(w), second = FIRST(w > LANES ? w - LANES : 0);
        V sum0 = ZERO, sum1 = ZERO;
        for (int64_t r = 0; r < COLUMNS; r++)
            offset[r] = (r < w ? r : w - 1) * ld;
        for (int64_t l = 0; l < k; l += LANES) {
            T turned[LANES * COLUMNS];
            const int64_t steps = k - l < LANES ? k - l : LANES;
            if (steps == LANES) {
                TURN_ALL(b + l, offset, turned, COLUMNS);
                TURN_ALL(b + l, offset + LANES, turned + LANES, COLUMNS);
            } else {
                NAME(turn)(b + l, ld, 1, w, steps, turned, COLUMNS);
            }
            for (int64_t r = l % BESIDE / 4; r < l % BESIDE / 4 + LANES / 4; r++) {
                uintptr_t soon = (uintptr_t)(b + offset[r] + l / BESIDE * BESIDE) + BESIDE * sizeof(T);
                for (int i = 0; i < BESIDE; i += NAME(LINE))
                    __builtin_prefetch((const void *)(soon + (uintptr_t)i * sizeof(T)));
            }
            for (int64_t s = 0; s < steps; s++) {
                const V x = SET(a[(l + s) * csa]);
                sum0 = FMA(x, LOAD(turned + s * COLUMNS), sum0);
                sum1 = FMA(x, LOAD(turned + s * COLUMNS + LANES), sum1);
            }
            if ((l + LANES) % DEPTH != 0 && l + LANES < k)
                continue;
            const bool old = add || l >= DEPTH;
            if (old) {
                sum0 = LOAD_FIRST(c, first) + sum0;
                if (w > LANES)
                    sum1 = LOAD_FIRST(c + LANES, second) + sum1;
            }
            STORE_FIRST(c, first, sum0);
            if (w > LANES)
                STORE_FIRST(c + LANES, second, sum1);
            sum0 = ZERO;
            sum1 = ZERO;
        }
    }
}

/* A tile of C that will be read or written after the present one. */
TARGET static void NAME(fetch)(const T *c, int64_t ldc, int64_t rows, int64_t w)
{
    for (int64_t i = 0; i < rows; i++, c += ldc) {
        for (int64_t j = 0; j < w; j += NAME(LINE))
            __builtin_prefetch(c + j, 1);
        __builtin_prefetch(c + w - 1, 1);
    }
}

/* Tile number t of a strip fetches two rows of the next one, `a`; when columns are adjacent, two runs of rows. */
TARGET static void NAME(plan_fetch)(NAME(panel) * p, const T *a, int64_t rs, int64_t cs, int64_t kc, int64_t t)
{
    const bool by_rows = cs == 1;
    const int64_t half = by_rows ? rs : kc / (2 * EVERY) * cs;
    p->soon[0] = (uintptr_t)a + (uintptr_t)(2 * t * half) * sizeof(T);
    p->soon[1] = p->soon[0] + (uintptr_t)half * sizeof(T);
    p->soon_step = by_rows ? NAME(LINE) : cs;
}

/* C[m, nc] += A[m, kc] B[kc, nc]: one block of B, all strips. `follow`: after the last block over k, else NULL. */
TARGET static void NAME(block)(int64_t m, int64_t nc, int64_t kc, const T *a, int64_t rsa, int64_t csa, const T *b,
                               int64_t rsb, int64_t csb, bool add, T *c, int64_t rsc, const NAME(follow) * follow)
{
    _Alignas(64) T copy_b[DEPTH * NAME(WIDTH)], copy_a[((ROWS + 3) & ~3) * STRIDE];
    const int64_t strips = NAME(pieces)(m, ROWS), least = m / strips, rest = m % strips;
    for (int64_t s = 0, i = 0, rows; s < strips; s++, i += rows) {
        rows = least + (s < rest);
        NAME(copy_strip)(a + i * rsa, rsa, csa, rows, m - i, kc, copy_a);
        for (int64_t j = 0, t = 0, full; j < nc; j += full, t++) {
            const int v = NAME(vectors)(m, nc - j);
            full = (int64_t)LANES << v;
            const int64_t w = nc - j < full ? nc - j : full;
            T *copy = copy_b + (strips > 1 ? j * kc : 0);
            NAME(panel) p = {.b = copy, .ld = full};
            NAME(tile_fn) *fn = NAME(tiles_near)[rows][v];
            if (s == 0 && csb == 1 && w == full) {
                p = (NAME(panel)){.b = b + j, .ld = rsb, .copy = copy};
                fn = strips > 1 ? NAME(tiles_keep)[rows][v] : NAME(tiles_far)[rows][v];
            } else if (s == 0) {
                NAME(copy_panel)(b + j * csb, rsb, csb, kc, w, copy, full);
            }
            if (j + w < nc)
                NAME(fetch)(c + i * rsc + j + w, rsc, rows, nc - j - w < full ? nc - j - w : full);
            else if (s + 1 < strips)
                NAME(fetch)(c + (i + rows) * rsc, rsc, least + (s + 1 < rest), nc < full ? nc : full);
            NAME(plan_fetch)(&p, s + 1 < strips ? a + (i + rows) * rsa : a, rsa, csa, kc, t);
            fn(kc, copy_a, &p, add, c + i * rsc + j, rsc, w);
        }
        if (follow)
            follow->after(follow->with, i, i + rows, follow->j, follow->j + nc);
    }
}

/* C[m, count panels] += A[m, kc] B: B is `count` panels of two vectors, `step` elements apart. The first strip reads
 * them from memory, the others find them in the second-level cache. */
TARGET static void NAME(panels_block)(int64_t m, int64_t count, int64_t kc, const T *a, int64_t rsa, int64_t csa,
                                      const T *b, int64_t step, bool add, T *c, int64_t rsc,
                                      const NAME(follow) * follow)
{
    _Alignas(64) T copy_a[((ROWS + 3) & ~3) * STRIDE];
    const int64_t strips = NAME(pieces)(m, ROWS), least = m / strips, rest = m % strips;
    for (int64_t s = 0, i = 0, rows; s < strips; s++, i += rows) {
        rows = least + (s < rest);
        NAME(copy_strip)(a + i * rsa, rsa, csa, rows, m - i, kc, copy_a);
        NAME(tile_fn) *fn = s == 0 ? NAME(tiles_far)[rows][1] : NAME(tiles_near)[rows][1];
        for (int64_t t = 0; t < count; t++) {
            NAME(panel) p = {.b = b + t * step, .ld = NAME(PANEL)};
            if (t + 1 < count)
                NAME(fetch)(c + i * rsc + (t + 1) * NAME(PANEL), rsc, rows, NAME(PANEL));
            else if (s + 1 < strips)
                NAME(fetch)(c + (i + rows) * rsc, rsc, least + (s + 1 < rest), NAME(PANEL));
            NAME(plan_fetch)(&p, s + 1 < strips ? a + (i + rows) * rsa : a, rsa, csa, kc, t);
            fn(kc, copy_a, &p, add, c + i * rsc + t * NAME(PANEL), rsc, NAME(PANEL));
        }
        if (follow)
            follow->after(follow->with, i, i + rows, follow->j, follow->j + count * NAME(PANEL));
    }
}

/* A row of C from `count` adjacent panels of k rows each, at most four, their sums side by side. */
TARGET static inline __attribute__((always_inline)) void NAME(row_panels)(const int count, int64_t k, const T *a,
                                                                          int64_t csa, const T *b, bool add, T *c)
{
    const int64_t step = k * NAME(PANEL);
    for (int64_t l0 = 0; l0 < k; l0 += DEPTH) {
        const int64_t end = k - l0 < DEPTH ? k : l0 + DEPTH;
#define SUM(v) V sum##v = ZERO;
#define STEP(v)                                                                                                        \
    if (v < 2 * count) {                                                                                               \
        const T *at = row + v / 2 * step + v % 2 * LANES;                                                              \
        __builtin_prefetch((const void *)((uintptr_t)at + SOON * NAME(PANEL) * sizeof(T)));                            \
        sum##v = FMA(x, LOAD(at), sum##v);                                                                             \
    }
#define PUT(v)                                                                                                         \
    if (v < 2 * count) {                                                                                               \
        if (add || l0 > 0)                                                                                             \
            sum##v = LOAD(c + v * LANES) + sum##v;                                                                     \
        STORE(c + v * LANES, sum##v);                                                                                  \
    }
        EIGHT(SUM)
        for (int64_t l = l0; l < end; l++) {
            const V x = SET(a[l * csa]);
            const T *row = b + l * NAME(PANEL);
            EIGHT(STEP)
        }
        EIGHT(PUT)
#undef SUM
#undef STEP
#undef PUT
    }
}

/* A column of C: its transpose is a row, made beside it. */
TARGET static void NAME(column)(int64_t m, int64_t k, const T *a, int64_t rsa, int64_t csa, const T *b, int64_t rsb,
                                int beta, T *c, int64_t rsc)
{
    T row[256];
    for (int64_t i0 = 0; i0 < m; i0 += 256) {
        int64_t count = m - i0 < 256 ? m - i0 : 256;
        for (int64_t i = 0; beta && i < count; i++)
            row[i] = c[(i0 + i) * rsc];
        NAME(aprt_gemm)(1, count, k, b, 1, rsb, a + i0 * rsa, csa, rsa, beta, row, count, NULL, NULL);
        for (int64_t i = 0; i < count; i++)
            c[(i0 + i) * rsc] = row[i];
    }
}

/* Few rows or columns, or an empty sum; true when it was one of these. */
TARGET static bool NAME(thin)(APRT_GEMM_ARGS(T))
{
    if (n == 1 && m > 1)
        NAME(column)(m, k, a, rsa, csa, b, rsb, beta, c, rsc);
    else if (k <= 0 && !beta)
        NAME(zero)(m, n, c, rsc);
    else if (m == 1 && csb == 1 && k > 0)
        NAME(rows)(n, k, a, csa, b, rsb, beta, c);
    else if (m == 1 && rsb == 1 && k > 0)
        NAME(dots)(n, k, a, csa, b, csb, beta, c);
    else if (k > 0)
        return false;
    if (after)
        after(with, 0, m, 0, n);
    return true;
}

TARGET void NAME(aprt_gemm)(APRT_GEMM_ARGS(T))
{
    if (NAME(thin)(m, n, k, a, rsa, csa, b, rsb, csb, beta, c, rsc, after, with))
        return;
    const int64_t unit = (int64_t)LANES << NAME(vectors)(m, n), panels = NAME(pieces)(n, unit);
    const int64_t nblocks = NAME(pieces)(panels, NAME(WIDTH) / unit);
    for (int64_t jb = 0; jb < nblocks; jb++) {
        const int64_t j = NAME(piece)(panels, nblocks, jb) * unit;
        const int64_t end = NAME(piece)(panels, nblocks, jb + 1) * unit, nc = (end < n ? end : n) - j;
        const NAME(follow) follow = {after, with, j};
        for (int64_t l = 0; l < k; l += DEPTH)
            NAME(block)
        (m, nc, k - l < DEPTH ? k - l : DEPTH, a + l * csa, rsa, csa, b + l * rsb + j * csb, rsb, csb, beta || l > 0,
         c + j, rsc, after && l + DEPTH >= k ? &follow : NULL);
    }
}

/* Whole panels of one row. */
TARGET static void NAME(row_of_panels)(int64_t whole, int64_t k, const T *a, int64_t csa, const T *b, bool add, T *c)
{
    for (int64_t t = 0; t < whole;) {
        const int64_t count = whole - t >= 4 ? 4 : whole - t >= 2 ? 2 : 1;
        const T *panel = b + t * k * NAME(PANEL);
        T *to = c + t * NAME(PANEL);
        if (count == 4)
            NAME(row_panels)(4, k, a, csa, panel, add, to);
        else if (count == 2)
            NAME(row_panels)(2, k, a, csa, panel, add, to);
        else
            NAME(row_panels)(1, k, a, csa, panel, add, to);
        t += count;
    }
}

/* B in panels (autopar_rt.h) of two vectors. The last columns, fewer than that, are a matrix of their own. */
TARGET void NAME(aprt_gemm_panels)(APRT_GEMM_PANELS_ARGS(T))
{
    const int64_t whole = n / NAME(PANEL), rest = n % NAME(PANEL), step = k * NAME(PANEL);
    const int64_t nblocks = NAME(pieces)(whole, NAME(WIDTH) / NAME(PANEL));
    if (k <= 0 || whole == 0) {
        NAME(aprt_gemm)(m, n, k, a, rsa, csa, b, n, 1, beta, c, rsc, after, with);
        return;
    }
    if (m == 1)
        NAME(row_of_panels)(whole, k, a, csa, b, beta, c);
    for (int64_t jb = 0; m > 1 && jb < nblocks; jb++) {
        const int64_t t = NAME(piece)(whole, nblocks, jb), end = NAME(piece)(whole, nblocks, jb + 1);
        const NAME(follow) follow = {after, with, t * NAME(PANEL)};
        for (int64_t l = 0; l < k; l += DEPTH)
            NAME(panels_block)
        (m, end - t, k - l < DEPTH ? k - l : DEPTH, a + l * csa, rsa, csa, b + t * step + l * NAME(PANEL), step,
         beta || l > 0, c + t * NAME(PANEL), rsc, after && l + DEPTH >= k ? &follow : NULL);
    }
    if (rest)
        NAME(aprt_gemm)
    (m, rest, k, a, rsa, csa, b + whole * step, rest, 1, beta, c + whole * NAME(PANEL), rsc, NULL, NULL);
    if (after && (rest || m == 1))
        after(with, 0, m, m == 1 ? 0 : n - rest, n);
}
