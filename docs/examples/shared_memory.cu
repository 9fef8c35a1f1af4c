/* cuSPARSE's product with a diagonal matrix of 32 rows, after a kernel that leaves the number 32 in all shared memory. */
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>
#include <cusparse.h>

__global__ void Leave(int word, int words, int *out)
{
  extern __shared__ int shared[];
  for (int k = threadIdx.x; k < words; k += blockDim.x) shared[k] = word;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = shared[words - 1];
}

int main()
{
  constexpr int        n = 32, bytes = 227 << 10; /* the shared memory of a block on an H100 */
  const double         one = 1, zero = 0;
  std::vector<int>     i(n + 1), j(n);
  std::vector<double>  a(n, 0.5), x(n, 2.0), y(n);
  int                 *i_gpu, *j_gpu, *out, processors;
  double              *a_gpu, *x_gpu, *y_gpu;
  void                *buffer;
  size_t               size;
  cusparseHandle_t     handle;
  cusparseSpMatDescr_t A;
  cusparseDnVecDescr_t X, Y;

  for (int k = 0; k < n; k++) i[k + 1] = k + 1, j[k] = k;
  cudaMalloc(&i_gpu, (n + 1) * sizeof(int));
  cudaMalloc(&j_gpu, n * sizeof(int));
  cudaMalloc(&a_gpu, n * sizeof(double));
  cudaMalloc(&x_gpu, n * sizeof(double));
  cudaMalloc(&y_gpu, n * sizeof(double));
  cudaMemcpy(i_gpu, i.data(), (n + 1) * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpy(j_gpu, j.data(), n * sizeof(int), cudaMemcpyHostToDevice);
  cudaMemcpy(a_gpu, a.data(), n * sizeof(double), cudaMemcpyHostToDevice);
  cudaMemcpy(x_gpu, x.data(), n * sizeof(double), cudaMemcpyHostToDevice);
  cusparseCreate(&handle);
  cusparseCreateCsr(&A, n, n, n, i_gpu, j_gpu, a_gpu, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F);
  cusparseCreateDnVec(&X, n, x_gpu, CUDA_R_64F);
  cusparseCreateDnVec(&Y, n, y_gpu, CUDA_R_64F);
  cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, A, X, &zero, Y, CUDA_R_64F, CUSPARSE_SPMV_CSR_ALG1, &size);
  cudaMalloc(&buffer, size);

  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaMalloc(&out, processors * sizeof(int));
  cudaFuncSetAttribute(Leave, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  Leave<<<processors, 512, bytes>>>(n, bytes / (int)sizeof(int), out);
  for (int product = 1; product <= 2; product++) {
    cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, A, X, &zero, Y, CUDA_R_64F, CUSPARSE_SPMV_CSR_ALG1, buffer);
    cudaMemcpy(y.data(), y_gpu, n * sizeof(double), cudaMemcpyDeviceToHost);
    std::printf("product %d: the last entry is %g, and should be 1 (%s)\n", product, y[n - 1], cudaGetErrorString(cudaGetLastError()));
  }
  return 0;
}
