/* The host twin of what nodes of different sizes need. */
#include "cmatch_nodes.h"

PetscErrorCode CMATCHPad_Host(const CSRView *A, const LocalInt *row, const LocalInt *place, CSR *padded)
{
  PetscScalar *const a = (PetscScalar *)padded->a;
  LocalInt           k = 0;

  PetscFunctionBegin;
  padded->i[0] = 0;
  for (LocalInt u = 0; u < padded->rows; u++) {
    const LocalInt from = row[u] < 0 ? ~row[u] : row[u];
    if (row[u] < 0) {
      padded->j[k] = u;
      a[k]         = 0;
    }
    for (LocalInt e = A->i[from]; e < A->i[from + 1]; e++) {
      if (row[u] >= 0) {
        padded->j[k] = place[A->j[e]];
        a[k++]       = A->a[e];
      } else if (A->j[e] == from) a[k] = A->a[e];
    }
    k += row[u] < 0;
    padded->i[u + 1] = k;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
