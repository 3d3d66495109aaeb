/* The tables of a program (aprt_program and what it points to) as they lie in memory: blocks of bytes in which some
 * places are pointers, to other blocks or to symbols. The JIT uses the blocks where they are; the object writer turns
 * them into constants with relocations. */
#ifndef AP_BACKEND_LLVM_IMAGE_H
#define AP_BACKEND_LLVM_IMAGE_H

#include "backend/emit.h"

/* At byte `at`: the address of a symbol, or where block `block` begins. Of a block in order of `at`. */
typedef struct ap_image_pointer {
    uint32_t at, block;
    const char *symbol;
} ap_image_pointer;

typedef struct ap_image_block {
    const char *name; /* of a symbol that code or linkers see; NULL: none */
    bool visible;     /* outside of a shared library too */
    char *bytes;      /* 16-byte aligned; pointers to blocks are filled in, to symbols NULL */
    size_t size;
    AP_VEC(ap_image_pointer) pointers;
} ap_image_block;

typedef struct ap_image {
    ap_arena *arena; /* borrowed; it holds everything */
    AP_VEC(ap_image_block) blocks;
    uint32_t program; /* the block that is the aprt_program */
} ap_image;

/* The tables of all stages. e->weight names the parameters (ap_emit_weights, ap_emit_hold_weights). Symbols:
 * functions of stages (ap_ll_stage_function), aprt_conv_release; named blocks: tables of exchanges and convolutions,
 * NAME_program. */
ap_status ap_image_make(ap_emit *e, ap_arena *arena, ap_image *out);

#endif
