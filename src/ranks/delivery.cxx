/* Messages between ranks. */
#include "ranks/delivery.h"

#include "sparse/memory.h"

bool Delivery::IsStaged() const
{
  return PetscMemTypeDevice(where_) && !DeviceMemoryGoesToMPI();
}

/* The entries of all parts, which follow one another. */
static size_t EndOf(const Delivery::Parts &parts)
{
  LocalInt end = 0;
  for (const Neighbours::Part &part : parts) end = PetscMax(end, part.end);
  return end;
}

/* The parts that are not empty, with the numbers that their ranks have for NCCL. */
Delivery::Parts Delivery::Numbered(const Parts &parts) const
{
  Parts numbered;
  for (const Neighbours::Part &part : parts)
    if (part.end > part.begin) numbered.push_back({(*numbers_)[part.rank], part.begin, part.end});
  return numbered;
}

PetscErrorCode Delivery::Add(const Parts &send, const void *from, const Parts &receive, void *to, MPI_Datatype type, int width)
{
  MPI_Aint low, extent;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_get_extent(type, &low, &extent));
  const size_t bytes = (size_t)extent * width;
  if (nccl_) {
    messages_.push_back({Numbered(send), Numbered(receive), from, to, bytes});
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (const Parts *parts : {&send, &receive})
    for (const Neighbours::Part &part : *parts)
      PetscCheck((PetscInt64)(part.end - part.begin) * width <= PETSC_MPI_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
                 "A message between two ranks has more values than MPI can count: take more ranks");
  arrays_.push_back({send, receive, from, to, type, width, bytes, {}, {}});
  if (IsStaged()) {
    arrays_.back().sent.resize(EndOf(send) * bytes);
    arrays_.back().received.resize(EndOf(receive) * bytes);
  }
  requests_.resize(requests_.size() + send.size() + receive.size());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Delivery::Ready()
{
  PetscFunctionBegin;
  for (Array &array : arrays_)
    if (!array.sent.empty()) PetscCall(ArrayCopy(array.sent.data(), array.from, array.sent.size(), PETSC_MEMTYPE_HOST, where_));
  if (PetscMemTypeDevice(where_) && !IsStaged() && !nccl_) PetscCall(DeviceSynchronize_CUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a rank sends to itself is copied: an MPI that takes memory of the GPU would copy it through the host, some kB at a time. */
PetscErrorCode Delivery::Deliver(MPI_Comm comm)
{
  const PetscMemType where = IsStaged() ? PETSC_MEMTYPE_HOST : where_;
  PetscMPIInt        rank, tag, posted = 0;

  PetscFunctionBegin;
  if (nccl_) {
    PetscCall(NCCLDeliver_CUDA(nccl_, messages_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCall(PetscCommGetNewTag(comm, &tag));
  for (Array &array : arrays_) {
    const char *const out   = IsStaged() ? array.sent.data() : (const char *)array.from;
    char *const       in    = IsStaged() ? array.received.data() : (char *)array.to;
    const auto        count = [&](const Neighbours::Part &part) { return (int)(part.end - part.begin) * array.width; };
    const char       *own   = nullptr; /* what this rank sends to itself */
    for (const Neighbours::Part &part : array.send) {
      if (part.rank == rank) own = out + part.begin * array.bytes;
      else if (count(part))
        PetscCallMPI(
          MPI_Isend(out + part.begin * array.bytes, count(part), array.type, part.rank, tag, comm, &requests_[posted++]));
    }
    for (const Neighbours::Part &part : array.receive) {
      char *const first = in + part.begin * array.bytes;
      if (part.rank == rank) PetscCall(ArrayCopy(first, own, (part.end - part.begin) * array.bytes, where, where));
      else if (count(part)) PetscCallMPI(MPI_Irecv(first, count(part), array.type, part.rank, tag, comm, &requests_[posted++]));
    }
  }
  PetscCallMPI(MPI_Waitall(posted, requests_.data(), MPI_STATUSES_IGNORE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Delivery::Take()
{
  PetscFunctionBegin;
  for (Array &array : arrays_)
    if (!array.received.empty())
      PetscCall(ArrayCopy(array.to, array.received.data(), array.received.size(), where_, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}
