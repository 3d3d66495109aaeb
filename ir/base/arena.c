/* Arenas: a list of blocks, newest first; each allocation bumps the newest. */
#include "ir/base/arena.h"

#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#endif
/* Under AddressSanitizer what is not handed out is poisoned, and a gap stays after each allocation, so that running
 * over the end of one is caught although all share a block. */
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define GAP 16u
__attribute__((noinline)) static void poison(void *p, size_t n)
{
    __asan_poison_memory_region(p, n);
}
static void unpoison(void *p, size_t n)
{
    __asan_unpoison_memory_region(p, n);
}
#else
#define GAP 0u
static void poison(void *p, size_t n)
{
    (void)p;
    (void)n;
}
static void unpoison(void *p, size_t n)
{
    (void)p;
    (void)n;
}
#endif

#define ALIGN 16u
#ifdef AP_ARENA_EXACT /* tests: every allocation is a block of its own, so that each can be made to fail */
#define FIRST_BLOCK 0u
#else
#define FIRST_BLOCK (64u * 1024u)
#endif

struct ap_arena_block {
    struct ap_arena_block *next;           /* of the arena */
    struct ap_arena_block *before, *after; /* of the root */
    ap_arena_root *root;
    size_t size, used;
    _Alignas(16) unsigned char data[];
};

void ap_arena_init(ap_arena *a, void (*out_of_memory)(void *user), ap_arena_root *user)
{
    *a = (ap_arena){.out_of_memory = out_of_memory, .user = user};
}

static void link_block(ap_arena_root *root, ap_arena_block *b)
{
    b->root = root;
    b->before = NULL;
    b->after = root ? root->blocks : NULL;
    if (b->after)
        b->after->before = b;
    if (root) {
        root->blocks = b;
        root->bytes += sizeof *b + b->size;
    }
}

static void free_block(ap_arena_block *b)
{
    if (b->root) {
        if (b->before)
            b->before->after = b->after;
        else
            b->root->blocks = b->after;
        if (b->after)
            b->after->before = b->before;
        b->root->bytes -= sizeof *b + b->size;
    }
    unpoison(b->data, b->size);
    free(b);
}

static void free_list(ap_arena_block *b)
{
    while (b) {
        ap_arena_block *next = b->next;
        free_block(b);
        b = next;
    }
}

void ap_arena_root_deinit(ap_arena_root *root)
{
    while (root->blocks)
        free_block(root->blocks);
}

void ap_arena_deinit(ap_arena *a)
{
    free_list(a->head);
    a->head = NULL;
}

void ap_arena_reset(ap_arena *a)
{
    if (!a->head)
        return;
    free_list(a->head->next);
    a->head->next = NULL;
    a->head->used = 0;
    poison(a->head->data, a->head->size);
    a->bytes = 0;
}

static void out_of_memory(ap_arena *a)
{
    if (a->out_of_memory)
        a->out_of_memory(a->user);
    abort();
}

/* Blocks double up to a bound, so that few are needed and little is wasted. */
static ap_arena_block *add_block(ap_arena *a, size_t need)
{
    size_t size = a->head && FIRST_BLOCK ? a->head->size * 2 : FIRST_BLOCK;
    if (size > (64u << 20))
        size = 64u << 20;
    if (size < need)
        size = need;
    const ap_arena_root *root = a->user;
    if (size > SIZE_MAX - sizeof(ap_arena_block))
        out_of_memory(a);
    if (root && root->limit && size > (root->limit > root->bytes ? root->limit - root->bytes : 0))
        out_of_memory(a);
    ap_arena_block *b = malloc(sizeof *b + size);
    if (!b)
        out_of_memory(a);
    b->size = size;
    b->used = 0;
    b->next = a->head;
    link_block(a->user, b);
    a->head = b;
    poison(b->data, b->size);
    return b;
}

void *ap_arena_alloc(ap_arena *a, size_t size)
{
    if (size > SIZE_MAX - ALIGN - GAP)
        out_of_memory(a);
    size_t need = ((size + ALIGN - 1) & ~(size_t)(ALIGN - 1)) + GAP;
    ap_arena_block *b = a->head;
    if (!b || b->size - b->used < need)
        b = add_block(a, need);
    void *p = b->data + b->used;
    b->used += need;
    a->bytes += need;
    unpoison(p, size);
    memset(p, 0, size);
    return p;
}

void *ap_arena_calloc(ap_arena *a, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory(a);
    return ap_arena_alloc(a, bytes);
}

char *ap_arena_strndup(ap_arena *a, const char *s, size_t n)
{
    char *p = ap_arena_alloc(a, n + 1);
    if (n)
        memcpy(p, s, n);
    return p;
}

char *ap_arena_strdup(ap_arena *a, const char *s)
{
    return ap_arena_strndup(a, s, strlen(s));
}

void *ap_arena_memdup(ap_arena *a, const void *p, size_t n)
{
    void *copy = ap_arena_alloc(a, n);
    if (n)
        memcpy(copy, p, n);
    return copy;
}

void *ap_vec_grow(ap_arena *a, void *at, uint32_t *cap, uint32_t len, size_t size)
{
    uint32_t next = *cap ? *cap * 2 : 8;
    if (next < *cap)
        out_of_memory(a);
    void *p = ap_arena_calloc(a, next, size);
    if (len)
        memcpy(p, at, (size_t)len * size);
    *cap = next;
    return p;
}
