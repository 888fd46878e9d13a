// The arithmetic of History Reference, one pair of components at a time.
//
// Both the CPU and the CUDA kernels are built from these functions, so that tests of one also cover
// the arithmetic of the other. A pair (2j, 2j+1) of an embedding is read as a complex number: to
// rotate it by its age and fade it is one complex product.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define REMASK_FN __host__ __device__ __forceinline__
#else
#define REMASK_FN inline
#endif

namespace remask {

// Storage types, numbered as in native.py.
enum Dtype : int { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2, kFloat64 = 3 };

struct BFloat16 {
  uint16_t bits;
};

REMASK_FN float to_acc(float x) { return x; }
REMASK_FN double to_acc(double x) { return x; }
REMASK_FN float to_acc(BFloat16 x) {  // bfloat16 is the upper half of a float32
  const uint32_t wide = static_cast<uint32_t>(x.bits) << 16;
  float out;
  memcpy(&out, &wide, sizeof(out));
  return out;
}

template <class acc_t>
struct Pair {
  acc_t re, im;
};

template <class acc_t>
REMASK_FN Pair<acc_t> operator+(Pair<acc_t> a, Pair<acc_t> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class acc_t>
REMASK_FN Pair<acc_t> operator-(Pair<acc_t> a, Pair<acc_t> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class acc_t>
REMASK_FN Pair<acc_t> operator*(Pair<acc_t> a, Pair<acc_t> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
// The gradient of x -> c * x, which rotates the other way.
template <class acc_t>
REMASK_FN Pair<acc_t> conj_times(Pair<acc_t> c, Pair<acc_t> g) {
  return {c.re * g.re + c.im * g.im, c.re * g.im - c.im * g.re};
}

// Trajectories as a run-length code. Segment 0 of a position shows from step 0, segment s from
// end(s - 1), each up to end(s); the last one has no end. Ends are non-decreasing along s.
struct Segments {
  const int32_t* tokens;  // [S, B, N]
  const int32_t* ends;    // [S-1, B, N]
  const int32_t* step;    // [B]
  int64_t count;          // S
  int64_t total;          // B * N
  int64_t positions;      // N

  REMASK_FN int token(int64_t s, int64_t i) const { return tokens[s * total + i]; }
  REMASK_FN int end(int64_t s, int64_t i) const { return ends[s * total + i]; }
  REMASK_FN int num_states(int64_t i) const { return step[i / positions] + 1; }
};

// The number of states from step `start` to the current one.
REMASK_FN int states_since(int start, int num_states) {
  return start < num_states ? num_states - start : 0;
}

// Segments top, top - 1, ... of position i, newest first: segment top - j shows in the states of
// age edge[j] up to, not including, edge[j + 1]. Let C[m] be the summed weights of the m youngest
// states, with C[0] = 0; the weight of segment top - j is then C[edge[j + 1]] - C[edge[j]]. Once an
// edge has reached the number of states, all older segments are empty and need not be read.
// kInner asserts that none of them is segment 0 or below.
template <int kSize, bool kInner = false>
struct Group {
  int edge[kSize + 1];

  REMASK_FN Group(const Segments& segments, int64_t i, int64_t top, int newest, int num_states) {
    edge[0] = newest;
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (int j = 0; j < kSize; ++j) {
      const int start = kInner || top > j ? segments.end(top - j - 1, i) : 0;
      edge[j + 1] = states_since(start, num_states);
    }
  }

  REMASK_FN bool is_empty(int j) const { return edge[j] == edge[j + 1]; }
};

}  // namespace remask
