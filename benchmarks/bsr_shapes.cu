/* Times the shapes of words for blocks of 3 and 5 in single precision beside those of columns. Built alone: see the last lines. */
#include "../cuda/sparse/bsr.cu"

#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>

#define CHECK(call)                                     \
  do {                                                  \
    cudaError_t e = (call);                             \
    if (e != cudaSuccess) {                             \
      printf("%s: %s\n", #call, cudaGetErrorString(e)); \
      exit(1);                                          \
    }                                                   \
  } while (0)

constexpr int kCopies = 4, kRounds = 5, kLaunches = 40;

struct Systems {
  BSR                 W[kCopies];
  double             *x, *y, *y0;
  std::vector<double> expected;
  double              bytes;
};

template <typename P>
void Time(const Systems &s, const char *name, int a, int b, int c)
{
  const BSR     &W      = s.W[0];
  const LocalInt slices = (W.rows - 1) / P::groups + 1;
  int            processors;
  CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  const int blocks =
    std::min((int)(((long long)slices * 32 + kMultiplyBlock - 1) / kMultiplyBlock), processors * BlocksOnChip<P, 1>());
  cudaEvent_t start, end;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  float        best = 1e30f;
  const size_t n    = (size_t)W.rows * W.bs;
  CHECK(cudaMemset(s.y, 0xff, n * sizeof(double)));
  for (int round = 0; round <= kRounds; round++) {
    CHECK(cudaEventRecord(start));
    for (int l = 0; l < kLaunches; l++)
      MultiplyBlocks<P, 1><<<blocks, kMultiplyBlock>>>(s.W[l % kCopies], Vectors{s.x, nullptr, s.y, 0, 0, 0});
    CHECK(cudaEventRecord(end));
    CHECK(cudaGetLastError());
    CHECK(cudaEventSynchronize(end));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, end));
    if (round) best = std::min(best, ms);
  }
  std::vector<double> y(n);
  CHECK(cudaMemcpy(y.data(), s.y, n * sizeof(double), cudaMemcpyDeviceToHost));
  double worst = 0;
  for (size_t k = 0; k < n; k++) {
    const double d = std::fabs(y[k] - s.expected[k]);
    if (!(d <= worst)) worst = d;
  }
  const double seconds = best * 1e-3 / kLaunches;
  printf("| %d | %5.2f | %s %d %d %d | %7.2f | %5.0f | %.0e |\n", (int)W.bs, (double)W.nnz / W.rows, name, a, b, c, seconds * 1e6,
         s.bytes / seconds * 1e-9, worst);
  fflush(stdout);
}

template <int BS, int Periods, int Ahead>
void Words(const Systems &s)
{
  Time<WordPlace<BS, Periods, Ahead, 8>>(s, "words", Periods, Ahead, 8);
  Time<WordPlace<BS, Periods, Ahead, 6>>(s, "words", Periods, Ahead, 6);
  Time<WordPlace<BS, Periods, Ahead, 5>>(s, "words", Periods, Ahead, 5);
}

template <int BS>
void Run(const std::vector<int> &distances, int rows)
{
  Systems               s;
  std::vector<LocalInt> i(1, 0), j;
  std::vector<float>    a;
  std::vector<double>   x((size_t)rows * BS);
  for (int row = 0; row < rows; row++) {
    for (int d : distances)
      if (row + d >= 0 && row + d < rows) j.push_back(row + d);
    i.push_back((LocalInt)j.size());
  }
  a.resize(j.size() * BS * BS);
  unsigned state = 1;
  for (auto &v : a) v = (float)((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
  for (auto &v : x) v = (double)((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
  const size_t n = (size_t)rows * BS;
  CHECK(cudaMalloc(&s.x, n * 8));
  CHECK(cudaMalloc(&s.y, n * 8));
  CHECK(cudaMemcpy(s.x, x.data(), n * 8, cudaMemcpyHostToDevice));
  for (BSR &W : s.W) {
    W      = BSR{};
    W.bs   = BS;
    W.rows = W.columns = rows;
    W.nnz              = (LocalInt)j.size();
    CHECK(cudaMalloc(&W.i, i.size() * 4));
    CHECK(cudaMalloc(&W.j, j.size() * 4));
    CHECK(cudaMalloc(&W.a, (a.size() + 4) * 4));
    CHECK(cudaMemset(W.a, 0xff, (a.size() + 4) * 4));
    CHECK(cudaMemcpy(W.i, i.data(), i.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(W.j, j.data(), j.size() * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(W.a, a.data(), a.size() * 4, cudaMemcpyHostToDevice));
    W.precision = FINEPC_SINGLE;
  }
  s.expected.assign(n, 0);
  for (int row = 0; row < rows; row++)
    for (LocalInt k = i[row]; k < i[row + 1]; k++)
      for (int c = 0; c < BS; c++)
        for (int r = 0; r < BS; r++)
          s.expected[(size_t)row * BS + r] += (double)a[((size_t)k * BS + c) * BS + r] * x[(size_t)j[k] * BS + c];
  s.bytes           = 4. * a.size() + 4. * j.size() + 4. * i.size() + 16. * n;
  const double mean = (double)j.size() / rows;
  Time<Place<float, BS, 0>>(s, "columns", 0, 0, 0);
  Time<Place<float, BS, 1>>(s, "columns", 1, 0, 0);
  Time<Place<float, BS, 2>>(s, "columns", 2, 0, 0);
  if constexpr (BS == 3) {
    Words<3, 1, 2>(s);
    Words<3, 1, 3>(s);
    Words<3, 1, 4>(s);
    Words<3, 2, 2>(s);
    Words<3, 2, 3>(s);
    Words<3, 2, 4>(s);
    Words<3, 3, 2>(s);
    Words<3, 3, 3>(s);
    Words<3, 5, 2>(s);
    Words<3, 5, 3>(s);
  } else {
    Words<5, 1, 3>(s);
    Words<5, 1, 4>(s);
    Words<5, 2, 2>(s);
    Words<5, 2, 3>(s);
    Words<5, 2, 4>(s);
    Words<5, 3, 2>(s);
    Words<5, 3, 3>(s);
    Words<5, 6, 2>(s);
  }
  (void)mean;
  CHECK(cudaFree(s.x));
  CHECK(cudaFree(s.y));
  for (BSR &W : s.W) {
    CHECK(cudaFree(W.i));
    CHECK(cudaFree(W.j));
    CHECK(cudaFree(W.a));
  }
}

int main()
{
  printf("| bs | blocks a row | shape | us | GB/s | difference |\n|---|---|---|---|---|---|\n");
  for (int bs : {3, 5}) {
    const int                           m = bs == 3 ? 70 : 60, p = m * m, rows = m * m * m;
    const std::vector<std::vector<int>> all = {{-p, -m, -1},
                                               {0, 1, m, p},
                                               {-p, -m, -1, 0, 1, m, p},
                                               {-2 * p, -p - m, -p - 1, -p, -2 * m, -m - 1, -m, -2, -1, 0},
                                               {0, 1,     2,     3,     m,         m + 1,     m + 2, 2 * m,     2 * m + 1, 3 * m,
                                                p, p + 1, p + 2, p + m, p + m + 1, p + 2 * m, 2 * p, 2 * p + 1, 2 * p + m, 3 * p}};
    for (const auto &d : all) bs == 3 ? Run<3>(d, rows) : Run<5>(d, rows);
  }
  return 0;
}
