/* JSON in which all numbers are whole, read once from front to back: what problem files need, at the speed of memory.
 * Every function that returns a status has told what is wrong, with the place, when it is not AP_OK. */
#ifndef AP_PASSES_SOLVE_PROBLEM_SCAN_H
#define AP_PASSES_SOLVE_PROBLEM_SCAN_H

#include "passes/solve/problem_file.h"

#include <zlib.h>

typedef struct ap_scan {
    ap_ctx *ctx;
    const char *path;
    const uint8_t *at, *end;    /* text at hand */
    const uint8_t *start;       /* of the text at hand */
    uint64_t before, line_from; /* bytes before `start`; where the line began */
    uint32_t line;
    bool packed, over; /* gzip; the data are at their end */
    ap_status failed;
    z_stream z;
    uint8_t *window;
} ap_scan;

/* `data` must live as long as the scan; what it needs of memory is the arena's. */
ap_status ap_scan_open(ap_ctx *ctx, ap_arena *arena, const char *path, const uint8_t *data, uint64_t size,
                       ap_scan *out);

ap_place ap_scan_place(const ap_scan *s);
ap_status ap_scan_fail(ap_scan *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The next character that is no space; 0 at the end. Consumes what stands before it. */
int ap_scan_peek(ap_scan *s);
/* Consumes exactly this character. */
ap_status ap_scan_expect(ap_scan *s, char c);
/* For lists and objects: consumes `open` and, for an empty one, `close`; then after each element ',' or `close`.
 *
 *     AP_TRY(ap_scan_enter(s, '[', ']', &more));
 *     while (more) {
 *         ... one element ...
 *         AP_TRY(ap_scan_next(s, ']', &more));
 *     } */
ap_status ap_scan_enter(ap_scan *s, char open, char close, bool *more);
ap_status ap_scan_next(ap_scan *s, char close, bool *more);
ap_status ap_scan_int(ap_scan *s, int64_t *out);
/* Without the quotes, escapes resolved to plain bytes where they are of ASCII, '?' otherwise; at most cap - 1 bytes
 * are kept. */
ap_status ap_scan_string(ap_scan *s, char *out, size_t cap);
/* Any value. */
ap_status ap_scan_skip(ap_scan *s);
/* Nothing may follow. */
ap_status ap_scan_finish(ap_scan *s);

#endif
