// The arithmetic of History Reference, one pair of components at a time.
//
// Both the CPU and the CUDA kernels are built from these functions, so that what is tested on one
// holds for the other. A pair (2j, 2j+1) of an embedding is read as a complex number; rotating it by
// its age and fading it is then one complex product.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define REMASK_FN __host__ __device__ __forceinline__
#else
#define REMASK_FN inline
#endif

namespace remask {

// Storage types as the Python side numbers them.
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
// The gradient of x -> c * x, which turns the other way.
template <class acc_t>
REMASK_FN Pair<acc_t> conj_times(Pair<acc_t> c, Pair<acc_t> g) {
  return {c.re * g.re + c.im * g.im, c.re * g.im - c.im * g.re};
}

// Trajectories as a run-length code. Segment s of a position shows from start(s) up to start(s + 1).
// Starts are non-decreasing, and paths are right-aligned: leading segments may be empty.
struct Segments {
  const int32_t* tokens;  // [S, B, N]
  const int32_t* ends;    // [S-1, B, N]
  const int32_t* step;    // [B]
  int64_t count;          // S
  int64_t total;          // B * N
  int64_t positions;      // N

  REMASK_FN int token(int64_t s, int64_t i) const { return tokens[s * total + i]; }
  REMASK_FN int start(int64_t s, int64_t i) const { return s > 0 ? ends[(s - 1) * total + i] : 0; }
  REMASK_FN int num_states(int64_t i) const { return step[i / positions] + 1; }
};

// The number of states from step `start` to the current one.
REMASK_FN int states_since(int start, int num_states) {
  return start < num_states ? num_states - start : 0;
}

// The states that show one token: those of age `newest` up to, not including, `oldest`. With C[m] the
// summed weights of the m youngest states, and C[0] = 0, their weight is C[oldest] - C[newest].
struct Piece {
  int token;
  int newest, oldest;
};

// Walks over the pieces of position i that are not empty, newest first. It reads no segment older
// than the first one that shows, so the cost follows the segments in use.
class Pieces {
 public:
  REMASK_FN Pieces(const Segments& segments, int64_t i)
      : ends_(segments.ends + (segments.count - 1) * segments.total + i),
        tokens_(segments.tokens + segments.count * segments.total + i),
        total_(segments.total),
        left_(segments.count),
        num_states_(segments.num_states(i)) {}

  REMASK_FN bool next(Piece& piece) {
    while (newest_ < num_states_) {  // the segment that starts at step 0 ends the walk
      ends_ -= total_;
      tokens_ -= total_;
      const int oldest = states_since(--left_ > 0 ? *ends_ : 0, num_states_);
      if (oldest > newest_) {
        piece = {*tokens_, newest_, oldest};
        newest_ = oldest;
        return true;
      }
    }
    return false;
  }

 private:
  const int32_t *ends_, *tokens_;
  int64_t total_, left_;
  int num_states_, newest_ = 0;
};

// Segments top, top - 1, ... of position i: segment top - j shows in the states of age edge[j] up to
// edge[j + 1]. Their starts are read at once, for devices that hide latency by loads in flight.
template <int kSize>
struct Group {
  int edge[kSize + 1];

  REMASK_FN Group(const Segments& segments, int64_t i, int64_t top, int newest, int num_states) {
    edge[0] = newest;
#if defined(__CUDACC__)
#pragma unroll
#endif
    for (int j = 0; j < kSize; ++j)
      edge[j + 1] = states_since(segments.start(top - j, i), num_states);
  }

  REMASK_FN bool is_empty(int j) const { return edge[j] == edge[j + 1]; }
};

}  // namespace remask
