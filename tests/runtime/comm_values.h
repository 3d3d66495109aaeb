/* The numbers of the conformance suite (comm_check.c): what ranks start with, and how an element of any type is read
 * and written. One text for processors and for GPUs. */
#ifndef TEST_COMM_VALUES_H
#define TEST_COMM_VALUES_H

#include "autopar_rt.h"

#include <stdbool.h>

/* Random bits; the same on every rank. */
APRT_FN uint64_t comm_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Integers as their bits, floats as numbers: all that a fold works on. */
typedef union comm_number {
    double f;
    int64_t i;
} comm_number;

APRT_FN bool comm_is_float(int32_t t)
{
    return t == APRT_F32 || t == APRT_F64 || t == APRT_F16 || t == APRT_BF16;
}

APRT_FN comm_number comm_get(int32_t t, const void *at, int64_t i)
{
    comm_number x;
    x.i = 0;
    switch (t) {
    case APRT_F32:
        x.f = (double)((const float *)at)[i];
        break;
    case APRT_F64:
        x.f = ((const double *)at)[i];
        break;
    case APRT_F16:
        x.f = (double)aprt_f16_to_f32(((const uint16_t *)at)[i]);
        break;
    case APRT_BF16:
        x.f = (double)aprt_bf16_to_f32(((const uint16_t *)at)[i]);
        break;
    case APRT_I8:
        x.i = ((const int8_t *)at)[i];
        break;
    case APRT_U8:
        x.i = ((const uint8_t *)at)[i];
        break;
    case APRT_I16:
        x.i = ((const int16_t *)at)[i];
        break;
    case APRT_U16:
        x.i = ((const uint16_t *)at)[i];
        break;
    case APRT_I32:
        x.i = ((const int32_t *)at)[i];
        break;
    case APRT_U32:
        x.i = ((const uint32_t *)at)[i];
        break;
    default:
        x.i = ((const int64_t *)at)[i];
    }
    return x;
}

APRT_FN void comm_put(int32_t t, void *at, int64_t i, comm_number x)
{
    switch (t) {
    case APRT_F32:
        ((float *)at)[i] = (float)x.f;
        break;
    case APRT_F64:
        ((double *)at)[i] = x.f;
        break;
    case APRT_F16:
        ((uint16_t *)at)[i] = aprt_f32_to_f16((float)x.f);
        break;
    case APRT_BF16:
        ((uint16_t *)at)[i] = aprt_f32_to_bf16((float)x.f);
        break;
    case APRT_I8:
    case APRT_U8:
        ((uint8_t *)at)[i] = (uint8_t)x.i;
        break;
    case APRT_I16:
    case APRT_U16:
        ((uint16_t *)at)[i] = (uint16_t)x.i;
        break;
    case APRT_I32:
    case APRT_U32:
        ((uint32_t *)at)[i] = (uint32_t)x.i;
        break;
    default:
        ((int64_t *)at)[i] = x.i;
    }
}

/* A float in [-1, 1) with all digits that f32 has, so that sums are rounded. */
APRT_FN double comm_fraction(uint64_t bits)
{
    return (double)(float)((double)(int64_t)(bits >> 11) * 0x1p-52 - 1);
}

/* Element i of what a rank gives to an exchange. `special`: some of the floats are NaN or infinite. */
APRT_FN comm_number comm_value(int32_t t, bool special, int32_t rank, int64_t round, int64_t i)
{
    const uint64_t bits = comm_mix(((uint64_t)rank << 40) + ((uint64_t)round << 32) + (uint64_t)i);
    comm_number x;
    if (!comm_is_float(t))
        x.i = (int64_t)bits;
    else if (special && bits % 16 < 3)
        x.f = bits % 16 == 0 ? (double)NAN : bits % 16 == 1 ? (double)INFINITY : -(double)INFINITY;
    else
        x.f = comm_fraction(bits);
    return x;
}

/* What a rank starts a microbatch of a random program with. `coarse`: an eighth of a whole number, so that sums of a
 * few of them, halved a few times, are exact in any order. */
APRT_FN float comm_first_value(uint64_t seed, bool coarse, int32_t rank, int64_t mb, int64_t i)
{
    const uint64_t bits = comm_mix(seed ^ ((uint64_t)rank << 48) ^ ((uint64_t)mb << 32) ^ (uint64_t)i);
    return coarse ? (float)((int32_t)(bits % 1024) - 512) * 0.125f : (float)comm_fraction(bits);
}

/* A value of a random program as it lies in a slot of a channel, and what is added to a value from there. */
APRT_FN comm_number comm_to_slot(int32_t t, float v)
{
    comm_number x;
    if (comm_is_float(t))
        x.f = (double)v;
    else
        x.i = (int64_t)(v * 8);
    return x;
}

APRT_FN float comm_from_slot(int32_t t, const void *slot, int64_t i)
{
    const comm_number x = comm_get(t, slot, i);
    return comm_is_float(t) ? (float)x.f * 0.5f : (float)(x.i % 64) * 0.125f;
}

/* A coarse value that has grown: its eighths modulo 512. */
APRT_FN float comm_wrap(float v)
{
    return (float)((int32_t)(v * 8) % 512) * 0.125f;
}

#endif
