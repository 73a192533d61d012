mod ia;
