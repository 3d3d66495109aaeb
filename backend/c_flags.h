/* How emitted code is compiled, in one place for the driver and the CMakeLists.txt beside the code.
 *
 * -fno-trapping-math and -ffp-contract=fast decide whether loops become vector code and keep NaN and infinities;
 * -fno-math-errno lets sqrt be an instruction; -fopenmp-simd reads `#pragma omp simd` and needs no library. */
#ifndef AP_BACKEND_C_FLAGS_H
#define AP_BACKEND_C_FLAGS_H

#define AP_C_FLAGS(X)                                                                                                  \
    X("-std=c17")                                                                                                      \
    X("-O3")                                                                                                           \
    X("-fno-trapping-math")                                                                                            \
    X("-fno-math-errno")                                                                                               \
    X("-ffp-contract=fast")                                                                                            \
    X("-fopenmp-simd")                                                                                                 \
    X("-fPIC")

/* In the order of the link line, after libNAME.a. */
#define AP_C_LIBRARIES(X)                                                                                              \
    X("-l:libautopar_rt.a")                                                                                            \
    X("-lcjson")                                                                                                       \
    X("-lpthread")                                                                                                     \
    X("-lm")

/* Before those, for programs with convolutions. */
#define AP_C_CONV_LIBRARIES(X)                                                                                         \
    X("-l:libautopar_rt_conv.a")                                                                                       \
    X("-ldnnl")                                                                                                        \
    X("-lgomp")

#endif
