/* Bump allocation. Everything that the compiler makes lives in an arena and dies with it; nothing is
 * freed one by one. An arena never returns NULL: when memory is out it calls the handler of its
 * context, which leaves by longjmp (see ap_ctx_guard in ctx.h). */
#ifndef AP_IR_BASE_ARENA_H
#define AP_IR_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

typedef struct ap_arena_block ap_arena_block;

/* What a family of arenas holds together: the context's two and the short-lived ones of its users. When memory runs
 * out, frames whose arenas nobody will deinit any more are left by longjmp; ap_arena_root_deinit frees their blocks.
 * One thread at a time. */
typedef struct ap_arena_root {
    ap_arena_block *blocks;
    size_t bytes, limit; /* held now; more than `limit` counts as out of memory, 0: no limit */
} ap_arena_root;

typedef struct ap_arena {
    ap_arena_block *head;              /* newest block first */
    void (*out_of_memory)(void *user); /* must not return */
    ap_arena_root *user;               /* borrowed, also what the handler gets; or NULL */
    size_t bytes;                      /* handed out so far, for --verbose and tests */
} ap_arena;

void ap_arena_root_deinit(ap_arena_root *root);
void ap_arena_init(ap_arena *a, void (*out_of_memory)(void *user), ap_arena_root *user);
void ap_arena_deinit(ap_arena *a);
void ap_arena_reset(ap_arena *a); /* forgets all allocations, keeps one block */

/* Zeroed memory, aligned to 16 bytes. size 0 gives a valid pointer. */
void *ap_arena_alloc(ap_arena *a, size_t size);
/* count * size with an overflow check (overflow counts as out of memory). */
void *ap_arena_calloc(ap_arena *a, size_t count, size_t size);
char *ap_arena_strdup(ap_arena *a, const char *s);
char *ap_arena_strndup(ap_arena *a, const char *s, size_t n);
void *ap_arena_memdup(ap_arena *a, const void *p, size_t n);

#define AP_NEW(arena, T) ((T *)ap_arena_alloc((arena), sizeof(T)))
#define AP_NEW_ARRAY(arena, T, n) ((T *)ap_arena_calloc((arena), (size_t)(n), sizeof(T)))

/* A growing array in an arena: AP_VEC(int) v = {0}; ap_vec_push(arena, &v, 3); v.at[0], v.len */
#define AP_VEC(T)                                                                                                      \
    struct {                                                                                                           \
        T *at;                                                                                                         \
        uint32_t len, cap;                                                                                             \
    }
#define ap_vec_push(arena, v, ...)                                                                                     \
    do {                                                                                                               \
        if ((v)->len == (v)->cap)                                                                                      \
            (v)->at = ap_vec_grow((arena), (v)->at, &(v)->cap, (v)->len, sizeof *(v)->at);                             \
        (v)->at[(v)->len++] = (__VA_ARGS__);                                                                           \
    } while (0)
void *ap_vec_grow(ap_arena *a, void *at, uint32_t *cap, uint32_t len, size_t size);

#endif
