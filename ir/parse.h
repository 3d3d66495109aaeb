/* Inside the parser of modules and of local programs: state and the readers of parts. */
#ifndef AP_IR_PARSE_H
#define AP_IR_PARSE_H

#include "ir/lex.h"
#include "ir/module.h"
#include "ir/pointwise.h"

#define AP_PARSE_MAX_DEPTH 16        /* bodies inside bodies */
#define AP_PARSE_MAX_RANKS (1 << 20) /* points of one mesh */

/* What a name stands for; one array per sort, indexed by name. */
typedef enum ap_parse_sort {
    AP_PARSE_VALUE,  /* %x */
    AP_PARSE_NUMBER, /* %0 */
    AP_PARSE_SYMBOL,
    AP_PARSE_FUNC,
    AP_PARSE_SORT_COUNT
} ap_parse_sort;

typedef struct ap_parse_binding {
    ap_parse_sort sort;
    ap_name name;
} ap_parse_binding;

typedef struct ap_parser {
    ap_lex lex;
    ap_module *m;
    ap_func func;
    int32_t microbatches;                     /* of the `time` line; 0 before it */
    AP_VEC(uint32_t) id[AP_PARSE_SORT_COUNT]; /* id + 1; 0: unbound */
    AP_VEC(ap_parse_binding) bound;           /* values in scope, to be unbound at the end of their block */
} ap_parser;

/* ---- names (parse.c) ---- */
uint32_t ap_parse_lookup(const ap_parser *p, ap_parse_sort sort, ap_name name); /* AP_NONE when unbound */
ap_status ap_parse_bind(ap_parser *p, ap_parse_sort sort, ap_name name, uint32_t id);
/* `%x`, `%0` or `@w`, which must be bound. */
ap_status ap_parse_operand(ap_parser *p, ap_value *out);

/* A module up to the end of the text, or up to a closing brace, which stays. */
ap_status ap_module_parse_part(ap_lex *l, ap_module **out);

/* ---- parts (parse_parts.c) ---- */
ap_status ap_parse_dtype(ap_lex *l, ap_dtype *out);
ap_status ap_parse_shape(ap_lex *l, ap_shape_info *out);
/* After `@`: name, brackets, partials. `lenient`: the name may be absent, and a dimension of several factors may be
 * given by one list, for its first factor. */
ap_status ap_parse_sharding(ap_lex *l, const ap_module *m, const ap_shape_info *shape, bool lenient,
                            ap_sharding_info *out);
ap_status ap_parse_type(ap_lex *l, const ap_module *m, ap_type *out);
ap_status ap_parse_time(ap_lex *l, int32_t *out); /* after `time`: how many microbatches */
/* After `mesh`. microbatches: of the `time` line before it, 0 without one. */
ap_status ap_parse_mesh(ap_lex *l, int32_t microbatches, ap_mesh_info *out);
/* "dp,tp" as a mask over the axes of `mesh`. */
ap_status ap_parse_axes_mask(ap_lex *l, const ap_mesh_info *mesh, uint8_t *out);
/* What ap_print_conv_dim writes; "[1:1 stride 2,-]" for an operand of `rank` dimensions. */
ap_status ap_parse_conv_dim(ap_lex *l, ap_conv_dim *out);
ap_status ap_parse_conv(ap_lex *l, int rank, ap_conv_attr *out);
/* "kind" among `count` words; the message lists them. */
ap_status ap_parse_choice(ap_lex *l, const char *what, const char *const *words, int count, int *out);

/* ---- data (parse_data.c) ---- */
/* Contents before their element type is known. */
typedef struct ap_raw_data {
    size_t mark;
    ap_data_kind kind;
    bool hex;
    const uint8_t *bytes; /* hex */
    size_t nbytes;
    AP_VEC(ap_lex_number) number; /* list, splat */
    ap_name file;
    uint64_t offset, size;
    const ap_data_part *part;
} ap_raw_data;
ap_status ap_parse_scalar(ap_lex *l, ap_dtype dtype, ap_scalar *out);
ap_status ap_parse_data(ap_lex *l, ap_raw_data *out);           /* as in a constant's line */
ap_status ap_parse_data_in_parens(ap_lex *l, ap_raw_data *out); /* after `data`: (...) */
/* Checks the number of elements of inline data. */
ap_status ap_parse_data_finish(ap_lex *l, const ap_raw_data *raw, ap_dtype dtype, int64_t count, ap_data *out);

/* ---- nodes (parse_node.c) ---- */
ap_status ap_parse_block(ap_parser *p, ap_block block, int depth); /* up to and with the closing brace */

#endif
