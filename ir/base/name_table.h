/* Interned strings; used by ctx.c alone. */
#ifndef AP_IR_BASE_NAME_TABLE_H
#define AP_IR_BASE_NAME_TABLE_H

#include "ir/base/ctx.h"

ap_name_table *ap_name_table_create(ap_arena *arena);

/* 64-bit FNV-1a, for the hash tables of interned things. Never a source of order. */
uint64_t ap_hash_bytes(const void *p, size_t n);

#endif
