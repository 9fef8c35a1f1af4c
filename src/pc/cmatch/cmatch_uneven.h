/* Nodes of different sizes, in the face of PCCMATCH. */
#pragma once

#include "cmatch_face.h"

struct CMATCHUnevenNodes {
  CMATCHUnevenNodes()                                     = default;
  CMATCHUnevenNodes(const CMATCHUnevenNodes &)            = delete;
  CMATCHUnevenNodes &operator=(const CMATCHUnevenNodes &) = delete;
  ~CMATCHUnevenNodes();

  std::vector<PetscInt> sizes;                      /* of the nodes */
  LocalInt              rows = 0;                   /* of A */
  std::vector<LocalInt> row;                        /* see CMATCHPad_Host() */
  PetscMemType          where = PETSC_MEMTYPE_HOST; /* of the next one */
  LocalInt             *map   = nullptr;            /* `row` and, behind it, the places of the rows of A */

  size_t   Bytes() const { return (row.size() + (size_t)rows) * sizeof(LocalInt); }
  LocalInt RowOf(LocalInt u) const { return row[u] < 0 ? ~row[u] : row[u]; }
};

constexpr char kCMATCHUnevenRanks[] = "nodes have different sizes on several ranks, see MatSetVariableBlockSizes()";

/*
   What MatSetVariableBlockSizes() says of the rank's rows: their block size, or, with `sizes` of the PC, the largest one;
   `why_rows` where the hierarchy is one of rows. `together`: all ranks have one hierarchy.
*/
PetscErrorCode PCCMATCHChooseSizes(PC, bool together, PetscInt *bs);
/* Makes A with as many rows for each node as the largest one has, k, and `uneven` for `sizes` of the PC. */
PetscErrorCode PCCMATCHPad(PC_CMATCH *, const CSRView *A, LocalInt k, CSR *padded);
PetscErrorCode PCCMATCHFreeSizes(PC_CMATCH *);
