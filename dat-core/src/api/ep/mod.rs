mod answer;
