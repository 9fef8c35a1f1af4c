/* Stream captures, by which a sequence of kernel launches becomes a graph. */
#pragma once

#include "device/device.cuh"

/*
   Ends the capture of `stream` and makes the graph *made of all that was launched into it; `launched` is the error code of these
   launches. The capture ends even where a launch has failed, because nothing else can be done with a stream that is still
   capturing. No graph is made then, and the error code of the launches is the answer.
*/
inline PetscErrorCode EndCapture(cudaStream_t stream, PetscErrorCode launched, cudaGraphExec_t *made)
{
  cudaGraph_t       graph    = nullptr;
  const cudaError_t captured = cudaStreamEndCapture(stream, &graph);

  PetscFunctionBegin;
  const cudaError_t instantiated = launched || captured != cudaSuccess ? cudaSuccess : cudaGraphInstantiate(made, graph, 0);
  if (graph) PetscCallCUDA(cudaGraphDestroy(graph));
  PetscCall(launched);
  PetscCallCUDA(captured);
  PetscCallCUDA(instantiated);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The graph *made of all that launch(stream) launches, by a stream for captures alone, which is made if it is null. */
template <typename Launch>
PetscErrorCode CaptureGraph(cudaStream_t *stream, Launch launch, cudaGraphExec_t *made)
{
  PetscFunctionBegin;
  if (!*stream) PetscCallCUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  PetscCallCUDA(cudaStreamBeginCapture(*stream, cudaStreamCaptureModeThreadLocal));
  PetscCall(EndCapture(*stream, launch(*stream), made));
  PetscFunctionReturn(PETSC_SUCCESS);
}
