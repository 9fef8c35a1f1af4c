/*
   Messages between ranks, of arrays in either memory: rows of varying length, or values of which each rank sends a part to each of
   its neighbours. They are own ones, not those of a PetscSF, which would have to be made with a leaf for each entry, for one use.
*/
#pragma once

#include "nccl.h"
#include "neighbours.h"

/*
   What messages need is made when an array is added. Only the delivery is done by all ranks together, takes no memory, and cannot
   fail on one rank alone; what comes before it, and after it, a rank does alone. Where a delivery has failed, messages may still
   come: the arrays are left then, and the program has to end.
*/
class Delivery {
public:
  using Parts = std::vector<Neighbours::Part>;

  explicit Delivery(PetscMemType where = PETSC_MEMTYPE_HOST) : where_(where) { }
  /* By NCCL, unless it is null, where the ranks of the communicator have these numbers. */
  Delivery(PetscMemType where, NCCL *nccl, const std::vector<PetscMPIInt> &numbers) : where_(where), nccl_(nccl), numbers_(&numbers)
  {
  }

  /*
     The entries of part k of `send` go from there in `from` to the rank of the part, and those of `receive` come into `to`
     likewise; an entry is `width` values of a type.
  */
  PetscErrorCode Add(const Parts &send, const void *from, const Parts &receive, void *to, MPI_Datatype, int width = 1);
  /* What is sent is there for MPI afterwards, and an error of the GPU until here is met here. */
  PetscErrorCode Ready();
  PetscErrorCode Deliver(MPI_Comm);
  /* What has come is in its arrays afterwards. */
  PetscErrorCode Take();

private:
  struct Array {
    Parts             send, receive;
    const void       *from;
    void             *to;
    MPI_Datatype      type;
    int               width;
    size_t            bytes;          /* of an entry */
    std::vector<char> sent, received; /* on the host, where MPI takes no memory of the GPU */
  };
  bool  IsStaged() const;
  Parts Numbered(const Parts &) const;

  PetscMemType                    where_;
  NCCL                           *nccl_    = nullptr;
  const std::vector<PetscMPIInt> *numbers_ = nullptr;
  std::vector<Array>              arrays_;
  std::vector<MPI_Request>        requests_;
  std::vector<NCCLMessages>       messages_; /* in the place of both, with NCCL */
};
